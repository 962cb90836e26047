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
	// garbage with every tenth request, and each collection makes whatever is under way wait for some milliseconds on two cores.
	smallHeap = 16 << 20
)

// collectRarely has garbage be collected less often than usual while there is little of it: a short command saves a fifth of its processor time by
// that, and a daemon what it would do all the time. A heap of more than half of smallHeap is collected as usual. Whoever has set $GOGC
// wants what it says.
func collectRarely() {
	if os.Getenv("GOGC") != "" {
		return
	}
	usual := debug.SetGCPercent(firstCollection)
	afterCollection(func() { debug.SetGCPercent(collectAt(liveHeap(), usual)) })
}

// afterCollection calls do after each collection from now on, in a goroutine of the runtime.
func afterCollection(do func()) {
	unheld := &struct{ self *int }{new(int)} // nobody holds it, so the next collection finds it
	runtime.AddCleanup(unheld, func(do func()) {
		do()
		afterCollection(do)
	}, do)
}

// collectAt is how much garbage may come to what is live, in percent of that: the most of a few, because each change stops the program for a
// moment. The runtime never collects below 4 MiB for 100 %, and in proportion for more.
func collectAt(live uint64, usual int) int {
	const least, most = 100, 4 * 100
	for percent := uint64(most); percent > least; percent /= 2 {
		if live+live*percent/100 <= smallHeap {
			return max(int(percent), usual)
		}
	}
	return usual
}

// liveHeap is what the last collection has left, in bytes.
func liveHeap() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
