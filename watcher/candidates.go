package watcher

import (
	"sync"

	"rouse/watcher/fsys"
	"rouse/watcher/settle"
)

// maxKnown bounds each half of the files that a scan passes over: some 40 MB in all.
const maxKnown = 1 << 18

// candidates are the files of a folder on their way to a run: they settle, are hashed, wait for the
// others of their batch, and are claimed.
type candidates struct {
	*place
	hints  *hints
	report *report

	debouncer   *settle.Debouncer
	batch       *batch
	preexisting preexisting
	stampHasher fsys.Keyer
	known       *fsys.Cache[struct{}]     // files with which nothing is left to do
	hashing     map[string]bool           // large files that are being hashed in the background
	waiting     settle.WaitingFiles       // files that look complete and are not taken yet
	reappeared  map[string]reappearedFile // files that are there again as they were when their runs failed
	background  sync.WaitGroup

	mu     sync.Mutex
	hashed []candidate // large files whose hash has come
}

func newCandidates(p *place, h *hints, r *report) *candidates {
	return &candidates{
		place: p, hints: h, report: r,
		debouncer: settle.NewDebouncer(p.Settle), batch: newBatch(), stampHasher: fsys.NewKeyer(), known: fsys.NewCache[struct{}](maxKnown),
		hashing: map[string]bool{}, waiting: settle.NewWaitingFiles(), reappeared: map[string]reappearedFile{},
	}
}
