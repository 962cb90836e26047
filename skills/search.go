package skills

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"unicode"
)

// Entry is something that can be found by words: a skill or a tool.
type Entry struct {
	ID          string `json:"id"` // like "skill/pdf-tools"
	Name        string `json:"name"`
	Description string `json:"description"`
}

// Hit is an entry that was found, with how well it fits: more is better.
type Hit struct {
	Entry
	Score float64 `json:"score"`
}

// How much a word in the name counts for, beside one in the description; and the constants of
// BM25, by which a rare word counts for more and a long description for less.
const (
	nameWeight = 3.0
	saturation = 1.2
	lengthBias = 0.75
)

// Search ranks entries once: see Finder.
func Search(query string, entries []Entry, max int) []Hit {
	return NewFinder(entries).Search(query, max)
}

// Finder finds entries by words. It is made once of what there is, and asked often.
type Finder struct {
	entries       []Entry
	docs          []document
	documentCount map[string]float64 // entries that have a word
	averageLength float64            // length
}

// document are the words of one entry.
type document struct {
	count  map[string]float64
	length float64
}

// NewFinder counts the words of entries.
func NewFinder(entries []Entry) *Finder {
	f := &Finder{entries: entries, docs: make([]document, len(entries)), documentCount: map[string]float64{}}
	total := 0.0
	for i, e := range entries {
		d := document{count: map[string]float64{}}
		for _, w := range tokenize(e.Name) {
			d.count[w] += nameWeight
		}

		for _, w := range tokenize(e.Description) {
			d.count[w]++
			d.length++
		}

		for w := range d.count {
			f.documentCount[w]++
		}

		f.docs[i] = d
		total += d.length
	}

	f.averageLength = math.Max(total/math.Max(float64(len(entries)), 1), 1)
	return f
}

// Search ranks entries by the words that they share with a query, the best first, at most max
// of them (OSA-20). It is lexical: case, the endings of words ("reports",
// "reporting" for "report") and their order do not matter, synonyms are not known.
func (f *Finder) Search(query string, max int) []Hit {
	wanted := slices.Compact(slices.Sorted(slices.Values(tokenize(query))))
	all := float64(len(f.entries))
	var hits []Hit
	for i, e := range f.entries {
		score := 0.0
		for _, w := range wanted {
			n := f.docs[i].count[w]
			if n == 0 {
				continue
			}
			rare := math.Log(1 + (all-f.documentCount[w]+0.5)/(f.documentCount[w]+0.5))
			score += rare * n * (saturation + 1) / (n + saturation*(1-lengthBias+lengthBias*f.docs[i].length/f.averageLength))
		}

		if score > 0 {
			hits = append(hits, Hit{e, score})
		}
	}

	slices.SortFunc(hits, func(a, b Hit) int {
		return cmp.Or(cmp.Compare(b.Score, a.Score), cmp.Compare(a.ID, b.ID))
	})
	return hits[:min(max, len(hits))]
}

// stopWords are too common to say anything.
var stopWords = map[string]bool{
	"a": true, "an": true, "and": true, "are": true, "as": true, "at": true, "be": true, "by": true, "for": true, "from": true,
	"in": true, "is": true, "it": true, "of": true, "on": true, "or": true, "that": true, "the": true, "this": true, "to": true,
	"use": true, "when": true, "with": true, "you": true, "your": true, "how": true, "i": true, "me": true, "my": true, "want": true,
}

// tokenize are the words of a text in small letters without their common endings.
func tokenize(text string) []string {
	var out []string
	for _, w := range strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsNumber(r) }) {
		if !stopWords[w] {
			out = append(out, stem(w))
		}
	}
	return out
}

// stem cuts the endings that English puts on words, where enough is left.
func stem(w string) string {
	for _, ending := range []string{"ings", "ing", "ies", "ied", "ers", "er", "ed", "es", "s", "e", "y"} {
		rest, ok := strings.CutSuffix(w, ending)
		if ok && len(rest) >= 3 && !strings.HasSuffix(w, "ss") {
			return rest
		}
	}
	return w
}
