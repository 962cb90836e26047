package bench

import (
	"bytes"
	"io"
	"os/exec"
	"runtime"
	"strings"
	"testing"
)

// The measurement itself, with few files: what it has to find is found.
func TestBenchWatch(t *testing.T) {
	self, err := exec.LookPath("rouse")
	if err != nil {
		t.Fatal(err)
	}

	b := &watchBench{self: self, base: t.TempDir(), passes: 1, progress: io.Discard,
		sizes: watchSizes{drops: 1, fill: 5, folders: 250, burst: 100, files: 50}}
	figures, err := b.measure(t.Context(), b.drops, b.registration, b.burst, b.daemon)
	if err != nil {
		t.Fatal(err)
	}

	for _, f := range figures {
		if f.Unit == "files" && f.Value != 0 {
			t.Errorf("%s: %v", f.Name, f.Value)
		}
	}

	var out bytes.Buffer
	if err := printFigures(&out, figures); err != nil {
		t.Fatal(err)
	}

	for _, text := range []string{"1 KiB renamed in → started, p50", "1 MiB written → started, p99", "250 folders", "burst of 100 files: without", "50 files, each read by a run: runs"} {
		if !strings.Contains(out.String(), text) {
			t.Errorf("%q is missing in\n%s", text, &out)
		}
	}
}

func TestBareWalk(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("there is none here")
	}

	dir := t.TempDir()
	if err := createFiles(dir, "f", 2000); err != nil {
		t.Fatal(err)
	}
	if _, n, err := walkBare(dir); err != nil || n != 2000 {
		t.Errorf("%d files: %v", n, err)
	}
}
