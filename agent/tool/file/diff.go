package file

import (
	"fmt"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/aymanbagabas/go-udiff"

	"rouse/internal/text"
)

// Bounds of a difference that is shown (OSA-32).
const (
	maxDiffLines = 80
	maxDiffChars = 12_000
)

// changedRange returns the part of old, in whole lines, outside of which old and text are the same.
// Comparing only that keeps the diff of a small change in a large file fast.
func changedRange(old, text string) (from, to int) {
	n := min(len(old), len(text))
	same := 0
	for same < n && old[same] == text[same] {
		same++
	}

	from = strings.LastIndexByte(old[:same], '\n') + 1
	end := 0
	for end < n-from && old[len(old)-1-end] == text[len(text)-1-end] {
		end++
	}

	to = len(old) - end
	if at := strings.IndexByte(old[to:], '\n'); at >= 0 && to > from {
		return from, to + at + 1
	}
	if to == from && len(text)-end == from { // the texts are the same
		return from, to
	}

	return from, len(old)
}

// diff shows what changes, cut to a readable size.
func diff(path, old, now string) string {
	name := strings.TrimPrefix(filepath.ToSlash(path), "/")
	from, to := changedRange(old, now)
	edits := udiff.Lines(old[from:to], now[from:len(now)-(len(old)-to)])
	// The edits count from the beginning of the part.
	for i := range edits {
		edits[i].Start, edits[i].End = edits[i].Start+from, edits[i].End+from
	}

	d, err := udiff.ToUnified("a/"+name, "b/"+name, old, edits, udiff.DefaultContextLines)
	if err != nil {
		return fmt.Sprintf("the difference cannot be shown: %v", err)
	}

	lines := strings.SplitAfter(strings.TrimSuffix(d, "\n"), "\n")
	if len(lines) > maxDiffLines {
		left := len(lines) - maxDiffLines + 1
		d = strings.Join(lines[:maxDiffLines-1], "") + fmt.Sprintf("… %d more lines\n", left)
	}

	if utf8.RuneCountInString(d) > maxDiffChars {
		d = text.Truncate(d, maxDiffChars-1) + "\n"
	}

	return d
}
