package main

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
)

// The first collection of garbage is late, and those after it are as they would be.
func TestCollectLater(t *testing.T) {
	usual := debug.SetGCPercent(70)
	t.Cleanup(func() { debug.SetGCPercent(usual) })

	t.Setenv("GOGC", "70")
	if collectLater(); gcPercent() != 70 {
		t.Errorf("$GOGC is overruled: %d", gcPercent())
	}

	t.Setenv("GOGC", "")
	if collectLater(); gcPercent() != firstCollection {
		t.Errorf("before the first collection: %d", gcPercent())
	}
	for range 1000 { // what follows a collection runs beside it
		if runtime.GC(); gcPercent() == 70 {
			return
		}
	}
	t.Errorf("after the first collection: %d", gcPercent())
}

func gcPercent() uint64 {
	sample := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
