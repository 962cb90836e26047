package bench

import (
	"testing"

	"rouse/agent/sandbox"
)

// The measurement of modules runs what it says, on both of its machines.
func TestBenchModules(t *testing.T) {
	if raced {
		t.Skip("it is done without the race detector")
	}

	s, err := sandbox.New(sandbox.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if tier, lacks := s.Tier(t.Context()); tier == sandbox.TierD {
		t.Skipf("this machine confines nothing: %q", lacks)
	}

	b, err := newModuleBench(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer b.close()

	if err := b.measure(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	for _, f := range b.figures() {
		if f.Value <= 0 {
			t.Errorf("%+v", f)
		}
	}
}

// Runs that wait for their owner have no process and next to nothing in memory, and what is stored is compared with a database.
func TestBenchModuleRuns(t *testing.T) {
	if raced {
		t.Skip("it is done without the race detector")
	}

	b, err := newModuleRuns(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer b.close()

	if calls, bare, err := b.stored(t.Context()); err != nil || calls <= bare {
		t.Errorf("%f ms with a run around them, %f without (%v)", calls, bare, err)
	}
	memory, processes, err := b.paused(t.Context(), 3)
	if err != nil || processes > 0 || memory > 100<<10 {
		t.Errorf("%f bytes, %d processes (%v)", memory, processes, err)
	}
}
