package bench

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"testing"
)

// The measurement itself, with few steps: every run makes its calls and ends as it should.
func TestBenchLoop(t *testing.T) {
	self, err := exec.LookPath("rouse")
	if err != nil {
		t.Fatal(err)
	}

	figures, err := measureLoop(t.Context(), self, io.Discard, 1, loopSizes{short: 2, long: 4, many: 3, least: 4, turns: 3, daemon: 3})
	if err != nil {
		t.Fatal(err)
	}

	var out bytes.Buffer
	if err := printFigures(&out, figures); err != nil {
		t.Fatal(err)
	}

	for _, f := range loopFormats {
		for _, text := range []string{": step, 4 steps, 3 at once", ": recorded step, 2 steps, 3 at once", ": growth of a step, 2 → 4 steps", ": memory of a run, 4 steps"} {
			if !strings.Contains(out.String(), f.name+text) {
				t.Errorf("%q is missing in\n%s", f.name+text, &out)
			}
		}
	}

	for _, f := range figures {
		if strings.HasPrefix(f.Name, "openai: recorded step, 4 steps, 1 at once") && !strings.Contains(f.Goal, " fsyncs") {
			t.Errorf("%s has the goal %q", f.Name, f.Goal)
		}
	}

	for _, text := range []string{"a turn reserved and settled, 3 at once", "24 KiB made durable, 1 at once", "3 model runs at once, peak"} {
		if !strings.Contains(out.String(), text) {
			t.Errorf("%q is missing in\n%s", text, &out)
		}
	}
}

// What is compared says the same: the baseline sends each result, and each call that it answers.
func TestBenchLoopBaseline(t *testing.T) {
	for _, f := range loopFormats {
		bodies, err := bareBodies(f.name, 3)
		if err != nil {
			t.Fatal(err)
		}

		last := bodies[len(bodies)-1]
		if len(bodies) != 4 || !json.Valid(last) {
			t.Errorf("%s: %d requests, the last of them %s", f.name, len(bodies), last)
		}

		for _, text := range []string{"lookup", "call_3", "/f3", benchSystem, benchPrompt} {
			if !bytes.Contains(last, []byte(text)) {
				t.Errorf("%s: %q is missing in %s", f.name, text, last)
			}
		}

		if n := bytes.Count(last, []byte(resultMark)); n != 3 {
			t.Errorf("%s: %d results", f.name, n)
		}
	}
}

// The kinds of run that are measured, alone and many at once, for a profile of each; a step is what is counted.
func BenchmarkLoop(b *testing.B) {
	self, err := exec.LookPath("rouse")
	if err != nil {
		b.Fatal(err)
	}

	for _, steps := range []int{20, 100} {
		sizes := loopSizes{short: steps, long: steps, many: 64}
		bench, end, err := newLoopBench(b.Context(), self, sizes)
		if err != nil {
			b.Fatal(err)
		}

		defer func() {
			if err := end(); err != nil {
				b.Error(err)
			}
		}()

		for _, f := range loopFormats {
			plain, err := bench.whole(f, false)
			if err != nil {
				b.Fatal(err)
			}

			recorded, err := bench.whole(f, true)
			if err != nil {
				b.Fatal(err)
			}

			for _, k := range []struct {
				name string
				kind
			}{{"bare", bench.bare(f)}, {"own", plain}, {"recorded", recorded}} {
				for _, runs := range []int{1, sizes.many} {
					b.Run(fmt.Sprintf("%s/%s/%d/%d", f.name, k.name, steps, runs), func(b *testing.B) {
						b.ReportAllocs()
						spent := cpuTime()

						for b.Loop() {
							if err := atOnce(b.Context(), runs, k.kind, steps, false); err != nil {
								b.Fatal(err)
							}
						}

						b.ReportMetric(micros(cpuTime()-spent)/float64(b.N*runs*(steps+1)), "cpu-µs/step")
					})
				}
			}
		}
	}
}
