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

// BenchmarkDrops is the part of the measurement that is about files which come one at a time; a round is a pass of it.
func BenchmarkDrops(b *testing.B) {
	for _, k := range dropKinds {
		b.Run(k.name, func(b *testing.B) {
			w := &watchBench{base: b.TempDir(), progress: io.Discard, sizes: watchSizes{drops: 60, fill: 400}}
			var p50, allowed, all []float64
			for b.Loop() {
				took, event, commit, err := w.dropPass(b.Context(), k)
				if err != nil {
					b.Fatal(err)
				}
				all = append(all, took...)
				p50, allowed = append(p50, median(took)), append(allowed, 3*median(event)+median(commit))
			}

			b.ReportMetric(0, "ns/op")
			b.ReportMetric(median(p50), "p50-ms")
			b.ReportMetric(percentile(all, 99), "p99-ms")
			b.ReportMetric(percentile(all, 0), "least-ms")
			b.ReportMetric(median(allowed), "allowed-ms")
			b.ReportMetric(median(ratios(p50, allowed)), "ratio")
		})
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
