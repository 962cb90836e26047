package agentdb

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"rouse/agentdb/dberr"
)

const sampleRows = 5 // rows that a message or a result names

// errTooManyRejects ends an import of which more than half the rows do not fit.
var errTooManyRejects = errors.New("most rows do not fit")

// rejects are the rows of a file that do not fit.
type rejects struct {
	total    int // rows of the file
	rejected int
	first    []reject // in the order of the file
}

type reject struct {
	line   int
	reason string
}

// add notes a row. It ends the import with errTooManyRejects when too many do not fit.
func (f *rejects) add(line int, why string) error {
	f.rejected++
	// Rows that SQLite refuses come later than those of the same chunk that cannot be read.
	at, _ := slices.BinarySearchFunc(f.first, line, func(a reject, line int) int { return a.line - line })
	f.first = slices.Insert(f.first, at, reject{line, why})
	f.first = f.first[:min(len(f.first), sampleRows)]
	if f.rejected*2 > f.total {
		return errTooManyRejects
	}

	return nil
}

func (f *rejects) samples() []string {
	out := make([]string, len(f.first))
	for i, bad := range f.first {
		out[i] = fmt.Sprintf("line %d: %s", bad.line, bad.reason)
	}
	return out
}

// rejectError words errTooManyRejects for the file.
func (s *source) rejectError(rejected *rejects, err error) error {
	if !errors.Is(err, errTooManyRejects) {
		return err
	}

	advice := "Correct the file and import it again"
	// Rows of other widths are mostly a title or notes above the table.
	if s.Ragged {
		advice = "If the table begins further down, remove the lines above its headings; otherwise correct the file"
	}
	return dberr.Invalid("path", "%s: more than half of its %d rows do not fit, so nothing was imported: %s. %s", s.name, s.Rows, strings.Join(rejected.samples(), "; "), advice)
}
