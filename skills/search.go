package skills

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"unicode"
)

// Entry is a searchable item: a skill or a tool.
type Entry struct {
	ID          string   `json:"id"` // like "skill/pdf-tools"
	Name        string   `json:"name"`
	Description string   `json:"description"`
	Tags        []string `json:"tags,omitempty"`
}

// Entry returns the search entry of the skill.
func (s *Skill) Entry() Entry {
	return Entry{ID: "skill/" + s.Name, Name: s.Name, Description: s.Description, Tags: s.Tags}
}

// Hit is a search result. A higher score is a better match.
type Hit struct {
	Entry
	Score float64 `json:"score"`
}

// Weights of words in the name and tags, relative to words in the description, and the BM25
// constants k1 and b. BM25 favors rare words and short descriptions.
const (
	nameWeight = 3.0
	tagWeight  = 2.0
	saturation = 1.2
	lengthBias = 0.75
)

// Search searches entries once. See Finder.Search.
func Search(query string, entries []Entry, max int) []Hit {
	return NewFinder(entries).Search(query, max)
}

// Finder is a search index that can be reused.
type Finder struct {
	entries       []Entry
	docs          []document
	documentCount map[string]float64 // by word: number of entries that contain it
	averageLength float64
}

// document holds the word counts of one entry.
type document struct {
	count  map[string]float64
	length float64
}

// NewFinder returns a search index of entries.
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

	// At least 1, because there may be no entries or no descriptions.
	f.averageLength = math.Max(total/math.Max(float64(len(entries)), 1), 1)
	return f
}

// Search returns at most max entries that share words with the query, best match first. The search
// is lexical: it ignores case, word endings and word order, and does not know synonyms. For
// example, "reports" and "reporting" match "report".
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
			// BM25: inverse document frequency times saturated term frequency.
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

// tokenize splits text into stemmed lower-case words, without stop words.
func tokenize(text string) []string {
	var out []string
	for _, w := range strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsNumber(r) }) {
		if !stopWords[w] {
			out = append(out, stem(w))
		}
	}
	return out
}

// stem removes a common English ending if at least three letters remain.
func stem(w string) string {
	for _, ending := range []string{"ings", "ing", "ies", "ied", "ers", "er", "ed", "es", "s", "e", "y"} {
		rest, ok := strings.CutSuffix(w, ending)
		if ok && len(rest) >= 3 && !strings.HasSuffix(w, "ss") {
			return rest
		}
	}
	return w
}
