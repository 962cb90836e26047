package text

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

const (
	// maxNameBytes is the longest name that Nearest compares. Comparing takes time proportional to
	// the product of the lengths.
	maxNameBytes = 2 * 63
	// maxListed is the maximum number of names in a message.
	maxListed = 200
)

// Nearest returns the known name that is most similar to a wrong one, ignoring case, or "" if there
// is no similar name. A name with two swapped letters is preferred. Of equally similar names, the
// first is returned.
func Nearest(wrong string, known []string) string {
	if len(wrong) > maxNameBytes {
		return ""
	}

	wrong = strings.ToLower(wrong)
	size := utf8.RuneCountInString(wrong)
	// Short names need a closer match: "b" is not a typo of "a".
	best, least := "", min(size/2, size/3+1)+1
	for _, name := range known {
		if swapped(wrong, strings.ToLower(name)) {
			return name
		}
		if d := Distance(wrong, strings.ToLower(name)); d < least {
			best, least = name, d
		}
	}

	return best
}

// Distance returns the Levenshtein distance between two texts, in characters.
func Distance(a, b string) int {
	from, to := []rune(a), []rune(b)
	row := make([]int, len(to)+1) // distances from a prefix of a to each prefix of b
	for j := range row {
		row[j] = j
	}
	for i, r := range from {
		before := row[0]
		row[0] = i + 1
		for j, other := range to {
			cost := before
			if r != other {
				cost = 1 + min(before, row[j], row[j+1])
			}
			before, row[j+1] = row[j+1], cost
		}
	}
	return row[len(to)]
}

// swapped reports whether two texts differ only by two swapped neighboring characters.
func swapped(a, b string) bool {
	if len(a) != len(b) {
		return false
	}

	x, y := []rune(a), []rune(b)
	for i := range min(len(x), len(y)) - 1 {
		if x[i] != y[i] {
			return x[i] == y[i+1] && x[i+1] == y[i] && string(x[i+2:]) == string(y[i+2:])
		}
	}
	return false
}

// DidYouMean returns a question with the nearest name: `did you mean "expenses"?`. It returns "" if
// there is no similar name.
func DidYouMean(wrong string, known []string) string {
	best := Nearest(wrong, known)
	if best == "" {
		return ""
	}

	return fmt.Sprintf("did you mean %q?", best)
}

// NoSuch returns a message that there is no thing of that name. It suggests the nearest name or
// lists all of them.
func NoSuch(thing, wrong string, known []string) string {
	text := fmt.Sprintf("there is no %s %q; ", thing, wrong)
	if ask := DidYouMean(wrong, known); ask != "" {
		return text + ask
	}
	if len(known) == 0 {
		return text + fmt.Sprintf("no %s is configured", thing)
	}

	return text + "there are " + List(known, maxListed)
}
