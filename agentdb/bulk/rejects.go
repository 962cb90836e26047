package bulk

import (
	"errors"
	"fmt"
	"slices"
)

const sampleRows = 5 // Rows that a message or a result names

// ErrTooManyRejects ends an import of which more than half the rows do not fit.
var ErrTooManyRejects = errors.New("most rows do not fit")

// Rejects are the rows of a file that do not fit.
type Rejects struct {
	Total    int // Rows of the file
	Rejected int
	first    []reject // in the order of the file
}

type reject struct {
	line   int
	reason string
}

// Add notes a row. It ends the import with errTooManyRejects when too many do not fit.
func (f *Rejects) Add(line int, why string) error {
	f.Rejected++
	// Rows that SQLite refuses come later than those of the same chunk that cannot be read.
	at, _ := slices.BinarySearchFunc(f.first, line, func(a reject, line int) int { return a.line - line })
	f.first = slices.Insert(f.first, at, reject{line, why})
	f.first = f.first[:min(len(f.first), sampleRows)]
	if f.Rejected*2 > f.Total {
		return ErrTooManyRejects
	}

	return nil
}

// Samples returns why the first rows do not fit.
func (f *Rejects) Samples() []string {
	out := make([]string, len(f.first))
	for i, bad := range f.first {
		out[i] = fmt.Sprintf("line %d: %s", bad.line, bad.reason)
	}
	return out
}
