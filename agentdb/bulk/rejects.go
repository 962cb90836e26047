package bulk

import (
	"errors"
	"fmt"
	"slices"
)

const sampleRows = 5 // rejected rows shown in a message or result

// ErrTooManyRejects is returned if more than half of the rows of an import do not fit.
var ErrTooManyRejects = errors.New("most rows do not fit")

// Rejects collects the rows of a file that do not fit.
type Rejects struct {
	Total    int // rows of the file
	Rejected int
	first    []reject // first rejected rows in file order
}

type reject struct {
	line   int
	reason string
}

// Add records a rejected row. It returns ErrTooManyRejects if too many rows do not fit.
func (f *Rejects) Add(line int, why string) error {
	f.Rejected++
	// SQLite rejects rows later than the parser rejects rows of the same chunk.
	at, _ := slices.BinarySearchFunc(f.first, line, func(a reject, line int) int { return a.line - line })
	f.first = slices.Insert(f.first, at, reject{line, why})
	f.first = f.first[:min(len(f.first), sampleRows)]
	if f.Rejected*2 > f.Total {
		return ErrTooManyRejects
	}

	return nil
}

// Samples returns the reasons why the first rows do not fit.
func (f *Rejects) Samples() []string {
	out := make([]string, len(f.first))
	for i, bad := range f.first {
		out[i] = fmt.Sprintf("line %d: %s", bad.line, bad.reason)
	}
	return out
}
