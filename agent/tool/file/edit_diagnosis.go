package file

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"rouse/internal/text"
)

// Limits that keep the diagnosis fast for every file.
const (
	maxCompared = 20_000 // lines compared with the wanted text
	maxLine     = 200    // characters shown and bytes compared of a line
	maxExcerpt  = 20     // lines shown
)

// gutterPattern matches the line numbers that file_read and read_file print.
var gutterPattern = regexp.MustCompile(`^ *\d+( \| ?|\||\t)`)

// diagnose explains why the text to be replaced is not in a file, and shows the most similar lines.
// It checks the most likely mistakes first: line numbers, blanks, empty lines, a similar line.
func diagnose(content, old string, redact func(string) string) string {
	const begin = "the text is not in the file"

	// Line numbers may not be the only mistake, so the search continues without them.
	wanted, lines, shown := splitLines(old), splitLines(content), splitLines(redact(content)) // shown has as many lines as lines
	if bare, ok := withoutGutter(wanted); ok {
		if at, n := locate(lines, bare, asIs, nil); n > 0 {
			return fmt.Sprintf("%s: it has line numbers in it, which are shown and the file does not have; without them it begins in line %d", begin, at+1)
		}
		wanted = bare
	}
	if at, n := locate(lines, wanted, text.Collapse, nil); n > 0 {
		return fmt.Sprintf("%s: it differs in blanks or tabs from %s", begin, numberedExcerpt(shown, at, n))
	}
	if at, n := locate(lines, wanted, text.Collapse, isBlank); n > 0 {
		return fmt.Sprintf("%s: it differs in empty lines from %s", begin, numberedExcerpt(shown, at, n))
	}

	first := ""
	if i := slices.IndexFunc(wanted, func(l string) bool { return !isBlank(l) }); i >= 0 {
		first = strings.TrimSpace(wanted[i])
	}
	if first == "" {
		return begin + ": it has nothing but blanks; read the file again"
	}

	// The first line exists, so a later line differs.
	for i, line := range lines {
		if strings.Contains(line, first) {
			return fmt.Sprintf("%s, but its first line is; there it reads %s", begin, numberedExcerpt(shown, i, len(wanted)+1))
		}
	}

	if at := closest(lines, first); at >= 0 {
		return fmt.Sprintf("%s; what is most like it is %s", begin, numberedExcerpt(shown, at, len(wanted)+1))
	}

	return begin + ", nor anything like it; read the file again"
}

func splitLines(text string) []string {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	for i := range lines {
		lines[i] = strings.TrimSuffix(lines[i], "\r")
	}
	return lines
}

// withoutGutter removes line numbers. It returns false if a line that is not blank has no number.
func withoutGutter(lines []string) ([]string, bool) {
	out := make([]string, len(lines))
	for i, l := range lines {
		prefix := gutterPattern.FindString(l)
		if prefix == "" && !isBlank(l) {
			return nil, false
		}
		out[i] = l[len(prefix):]
	}

	return out, true
}

func isBlank(line string) bool { return strings.TrimSpace(line) == "" }

func asIs(line string) string { return line }

// locate returns the index of the first wanted line and the number of lines that the match spans.
// It ignores lines for which skip is true. The first and the last wanted line may be parts of a
// line.
func locate(lines, wanted []string, as func(string) string, skip func(string) bool) (at, n int) {
	var want []string
	for _, w := range wanted {
		if skip == nil || !skip(w) {
			want = append(want, as(w))
		}
	}
	if len(want) == 0 || !slices.ContainsFunc(want, func(w string) bool { return w != "" }) {
		return 0, 0
	}

	var have []string
	var place []int // index in lines of each line in have
	for i, l := range lines {
		if skip == nil || !skip(l) {
			have, place = append(have, as(l)), append(place, i)
		}
	}

	for i := 0; i+len(want) <= len(have); i++ {
		if matchAt(have[i:i+len(want)], want) {
			return place[i], place[i+len(want)-1] - place[i] + 1
		}
	}

	return 0, 0
}

func matchAt(have, want []string) bool {
	last := len(want) - 1
	if last == 0 {
		return strings.Contains(have[0], want[0])
	}
	return strings.HasSuffix(have[0], want[0]) && strings.HasPrefix(have[last], want[last]) && slices.Equal(have[1:last], want[1:last])
}

// closest returns the index of the line most similar to wanted, as a whole or by its beginning. It
// returns -1 if no line is similar enough.
func closest(lines []string, wanted string) int {
	wanted = clip(wanted)
	size := len([]rune(wanted))
	best, distance := -1, max(size/2+1, min(size, 3))
	for i, l := range lines[:min(len(lines), maxCompared)] {
		runes := []rune(clip(strings.TrimSpace(l)))
		for _, part := range [][]rune{runes, runes[:min(size, len(runes))]} {
			// The distance is at least the difference of the lengths, which is faster to compute.
			if len(part) == 0 || max(len(part)-size, size-len(part)) >= distance {
				continue
			}
			if d := text.Distance(string(part), wanted); d < distance {
				best, distance = i, d
			}
		}
	}

	return best
}

// clip cuts a line for comparing.
func clip(line string) string { return text.HeadBytes(line, maxLine) }

// numberedExcerpt formats lines of the file as file_read does.
func numberedExcerpt(lines []string, at, n int) string {
	n = min(n, maxExcerpt, len(lines)-at)
	var out strings.Builder
	fmt.Fprintf(&out, "line %d:\n", at+1)
	for i, l := range lines[at : at+n] {
		out.WriteString(numberLine(at+i+1, text.Truncate(l, maxLine)))
	}
	return strings.TrimSuffix(out.String(), "\n")
}
