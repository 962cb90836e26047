package bench

import (
	"io"
	"testing"
)

// The measurement of skills finds what it made, and the floor reads the same files.
func TestBenchSkills(t *testing.T) {
	dir := t.TempDir()
	if err := writeSkills(dir, 80, 200); err != nil {
		t.Fatal(err)
	}

	figures, err := measureSkills(io.Discard, dir, 80, 1)
	if err != nil || len(figures) != 5 || figures[0].Baseline <= 0 {
		t.Errorf("%v (%v)", figures, err)
	}
	if err := bareSkills(dir, 81); err == nil {
		t.Error("the floor does not miss a file that is not there")
	}
}
