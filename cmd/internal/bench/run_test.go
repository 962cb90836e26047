package bench

import (
	"io"
	"os"
	"os/exec"
	"testing"
)

// The measurement itself, on few runs: what it counts is there, each goal has its figure, and nothing is left behind.
func TestBenchRun(t *testing.T) {
	self, err := exec.LookPath("rouse") // and not this program, whose name would run the tests again
	if err != nil {
		t.Fatal(err)
	}

	t.Setenv("TMPDIR", t.TempDir())
	figures, err := measureRun(t.Context(), self, io.Discard, 1, runSizes{due: 20, single: 2})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range figures {
		// A commit with which it is accepted and starts, and one for its end.
		if f.Name == "a run that reads a line, alone: fsyncs" && f.Value < 2 {
			t.Errorf("%s: %g, where a run starts and ends durably", f.Name, f.Value)
		}
		if f.Value <= 0 && f.Name != "a run that reads a line, alone: kept" && f.Name != "a run of ten steps, alone: kept" { // which counts in pages
			t.Errorf("%s: %g", f.Name, f.Value)
		}
	}
	if len(figures) != 12 {
		t.Errorf("%d figures: %v", len(figures), figures)
	}
	if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
