package skills

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"unicode"
)

// Entry is something that can be searched for: a skill or a tool.
type Entry struct {
	ID          string   `json:"id"` // like "skill/pdf-tools"
	Name        string   `json:"name"`
	Description string   `json:"description"`
	Tags        []string `json:"tags,omitempty"`
}

// Entry is a skill as it is searched for.
func (s *Skill) Entry() Entry {
	return Entry{ID: "skill/" + s.Name, Name: s.Name, Description: s.Description, Tags: s.Tags}
}

// Hit is a search result. A higher score is a better match.
type Hit struct {
	Entry
	Score float64 `json:"score"`
}

// The weight of a word in the name or among the tags, relative to one in the description, and the usual
// constants k1 and b of BM25, which gives rare words more weight and long descriptions less.
const (
	nameWeight = 3.0
	tagWeight  = 2.0
	saturation = 1.2
	lengthBias = 0.75
)

// Search searches entries once: see Finder.Search.
func Search(query string, entries []Entry, max int) []Hit {
	return NewFinder(entries).Search(query, max)
}

// Finder is a search index of entries, for many searches.
type Finder struct {
	entries       []Entry
	docs          []document
	documentCount map[string]float64 // by word: entries that have it
	averageLength float64
}

// document holds the word counts of one entry.
type document struct {
	count  map[string]float64
	length float64
}

// NewFinder indexes entries.
func NewFinder(entries []Entry) *Finder {
	f := &Finder{entries: entries, docs: make([]document, len(entries)), documentCount: map[string]float64{}}
	total := 0.0
	for i, e := range entries {
		d := document{count: map[string]float64{}}
		for _, w := range tokenize(e.Name) {
			d.count[w] += nameWeight
		}

		for _, w := range tokenize(strings.Join(e.Tags, " ")) {
			d.count[w] += tagWeight
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

	// At least 1: there may be no entries, or none with a description.
	f.averageLength = math.Max(total/math.Max(float64(len(entries)), 1), 1)
	return f
}

// Search ranks entries by the words that they share with a query, the best first, at most max of them
// (OSA-20). It is lexical: case, word endings ("reports" and "reporting" match "report") and the
// order of words do not matter, and synonyms are unknown.
func (f *Finder) Search(query string, max int) []Hit {
	terms := slices.Compact(slices.Sorted(slices.Values(tokenize(query))))
	total := float64(len(f.entries))
	var hits []Hit
	for i, e := range f.entries {
		score := 0.0
		for _, w := range terms {
			n := f.docs[i].count[w]
			if n == 0 {
				continue
			}
			// BM25: the inverse document frequency times the saturated frequency in this entry.
			rare := math.Log(1 + (total-f.documentCount[w]+0.5)/(f.documentCount[w]+0.5))
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

// stopWords are too common to distinguish entries.
var stopWords = map[string]bool{
	"a": true, "an": true, "and": true, "are": true, "as": true, "at": true, "be": true, "by": true, "for": true, "from": true,
	"in": true, "is": true, "it": true, "of": true, "on": true, "or": true, "that": true, "the": true, "this": true, "to": true,
	"use": true, "when": true, "with": true, "you": true, "your": true, "how": true, "i": true, "me": true, "my": true, "want": true,
}

// tokenize splits a text into lower-case words without stop words and endings.
func tokenize(text string) []string {
	var out []string
	for _, w := range strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsNumber(r) }) {
		if !stopWords[w] {
			out = append(out, stem(w))
		}
	}
	return out
}

// stem removes common English endings, if at least three letters are left.
func stem(w string) string {
	for _, ending := range []string{"ings", "ing", "ies", "ied", "ers", "er", "ed", "es", "s", "e", "y"} {
		rest, ok := strings.CutSuffix(w, ending)
		if ok && len(rest) >= 3 && !strings.HasSuffix(w, "ss") {
			return rest
		}
	}
	return w
}
