package agentdb

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
)

const sampleRows = 5 // rows that a message or a result names

// errTooManyRejects ends an import of which more than half the rows do not fit.
var errTooManyRejects = errors.New("most rows do not fit")

// faults are the rows of a file that do not fit. The reader of the file and the writer of
// the table both add to it.
type faults struct {
	of int // rows of the file

	mu    sync.Mutex
	n     int
	first []fault // in the order of the file
}

type fault struct {
	line int
	why  string
}

// add notes a row. It ends the import with errTooManyRejects when too many do not fit.
func (f *faults) add(line int, why string) error {
	f.mu.Lock()
	defer f.mu.Unlock()

	f.n++
	at, _ := slices.BinarySearchFunc(f.first, line, func(a fault, line int) int { return a.line - line })
	f.first = slices.Insert(f.first, at, fault{line, why})
	f.first = f.first[:min(len(f.first), sampleRows)]
	if f.n*2 > f.of {
		return errTooManyRejects
	}

	return nil
}

func (f *faults) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.n
}

func (f *faults) samples() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := make([]string, len(f.first))
	for i, bad := range f.first {
		out[i] = fmt.Sprintf("line %d: %s", bad.line, bad.why)
	}
	return out
}

// refusal words errTooManyRejects for the file.
func (s *source) refusal(left *faults, err error) error {
	if !errors.Is(err, errTooManyRejects) {
		return err
	}

	advice := "Correct the file and import it again"
	if s.Ragged {
		advice = "If the table begins further down, remove the lines above its headings; otherwise correct the file"
	}
	return invalid("path", "%s: more than half of its %d rows do not fit, so nothing was imported: %s. %s", s.name, s.Rows, strings.Join(left.samples(), "; "), advice)
}
