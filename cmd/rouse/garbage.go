package main

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

const (
	// firstCollection is how much garbage may lie about before it is first collected, of what is usual, in percent: 8 MiB in place of 4. Most
	// commands need a little more than those 4, and have ended before 8.
	firstCollection = 200
	// smallHeap is what the heap may grow to before garbage is collected again, in bytes. As usual a daemon of 2 or 3 MiB would collect its
	// garbage with every sixth to tenth request, and each collection makes whatever is under way wait for some milliseconds on two cores.
	smallHeap = 16 << 20
	// rarest is the most garbage that may come to what is live, in percent. For 100 % the runtime lets at least 4 MiB come together, and in
	// proportion for more.
	rarest = 400
)

// collectRarely has garbage be collected less often than usual while there is little of it: a short command saves a fifth of its processor time by
// that, and a daemon what it would do all the time. A heap of which half of smallHeap is live is collected as usual. Whoever has set $GOGC
// wants what it says.
func collectRarely() {
	if os.Getenv("GOGC") != "" {
		return
	}

	usual := debug.SetGCPercent(firstCollection)
	afterCollection(func() {
		live, roots := marked()
		debug.SetGCPercent(collectAt(live, roots, usual))
	})
}

// afterCollection calls do after each collection from now on, in a goroutine of the runtime.
func afterCollection(do func()) {
	unheld := &struct{ self *int }{new(int)} // nobody holds it, so the next collection finds it
	runtime.AddCleanup(unheld, func(do func()) {
		do()
		afterCollection(do)
	}, do)
}

// collectAt is how much garbage may come to what is live before the heap has smallHeap bytes, in percent of what is live and of the roots, as the
// runtime counts.
func collectAt(live, roots uint64, usual int) int {
	if live >= smallHeap {
		return usual
	}
	percent := (smallHeap - live) * 100 / max(live+roots, 1)
	return max(usual, int(min(percent, rarest)))
}

// marked is what the last collection has left on the heap, and what it looked at beside it (stacks and globals), in bytes.
func marked() (live, roots uint64) {
	samples := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"}, {Name: "/gc/scan/globals:bytes"}}
	metrics.Read(samples)
	return samples[0].Value.Uint64(), samples[1].Value.Uint64() + samples[2].Value.Uint64()
}
