package watcher

import (
	"sync"

	"rouse/watcher/fsys"
	"rouse/watcher/settle"
)

// maxKnown is the number of known files in each half of the cache, which then takes about 40 MB.
const maxKnown = 1 << 18

// candidates holds the files of a folder on their way to a run. They settle, are hashed, wait for
// the other files of their batch, and are claimed.
type candidates struct {
	*place
	hints  *hints
	report *report

	debouncer   *settle.Debouncer
	batch       *batch
	preexisting preexisting
	stampHasher fsys.Keyer
	known       *fsys.Cache[struct{}]     // files that need no further work
	hashing     map[string]bool           // large files that are being hashed in the background
	waiting     settle.WaitingFiles       // files that have settled but are held back
	reappeared  map[string]reappearedFile // files that exist again unchanged after their runs failed
	background  sync.WaitGroup

	mu     sync.Mutex
	hashed []candidate // large files with finished hashes
}

func newCandidates(p *place, h *hints, r *report) *candidates {
	return &candidates{
		place: p, hints: h, report: r,
		debouncer: settle.NewDebouncer(p.Settle), batch: newBatch(), stampHasher: fsys.NewKeyer(), known: fsys.NewCache[struct{}](maxKnown),
		hashing: map[string]bool{}, waiting: settle.NewWaitingFiles(), reappeared: map[string]reappearedFile{},
	}
}
