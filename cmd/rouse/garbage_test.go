package main

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
)

// The first collection of garbage is late, those of a small heap are rare, and a large one is collected as usual.
func TestCollectRarely(t *testing.T) {
	usual := debug.SetGCPercent(70)
	t.Cleanup(func() { debug.SetGCPercent(usual) })

	t.Setenv("GOGC", "70")
	if collectRarely(); gcPercent() != 70 {
		t.Errorf("$GOGC is overruled: %d", gcPercent())
	}

	t.Setenv("GOGC", "")
	if collectRarely(); gcPercent() != firstCollection {
		t.Errorf("before the first collection: %d", gcPercent())
	}

	// More than once: it goes on after the first collection.
	for range 2 {
		held := make([]byte, smallHeap)
		afterCollections(t, 70)
		runtime.KeepAlive(held)
		debug.SetGCPercent(90) // as if it had been changed meanwhile
	}
}

// afterCollections waits until garbage is collected at a percentage of what is live. What follows a collection runs beside it.
func afterCollections(t *testing.T, want uint64) {
	t.Helper()
	for range 1000 {
		if runtime.GC(); gcPercent() == want {
			return
		}
	}
	t.Errorf("after many collections garbage is collected at %d %%, want %d", gcPercent(), want)
}

func TestCollectAt(t *testing.T) {
	const mib = 1 << 20
	for _, test := range []struct {
		live, roots uint64
		usual, want int
	}{
		{0, 0, 100, 400}, {3 * mib, 0, 100, 400}, {4 * mib, 0, 100, 300}, {4 * mib, mib, 100, 240}, {8*mib - 1, 0, 100, 100}, {7 * mib, 2 * mib, 100, 100},
		{8 * mib, 0, 100, 100}, {1 << 40, mib, 100, 100}, {mib, 0, 500, 500}, {8 * mib, 0, 70, 100}, {12 * mib, 0, 70, 70},
	} {
		if got := collectAt(test.live, test.roots, test.usual); got != test.want {
			t.Errorf("%d bytes live beside %d, usually %d %%: %d, want %d", test.live, test.roots, test.usual, got, test.want)
		}
	}
}

func gcPercent() uint64 {
	sample := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
