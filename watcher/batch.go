package watcher

import (
	"cmp"
	"context"
	"maps"
	"os"
	"slices"
	"time"

	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/claim"
	"rouse/watcher/fsys"
	"rouse/watcher/settle"
)

// batch holds the ready files that wait for further files of their run. It is kept only in memory:
// after a crash a scan finds the files again, because they have no claim.
type batch struct {
	files map[string]*readyFile
	since time.Time // time at which the first file was ready
	count uint64
	retry time.Time // earliest next try after the ledger could not record the files
	// For a collecting watch: the time of the last handover, and the time at which this process
	// began to collect. Both are zero until it begins.
	collected, began time.Time
	handover         *claim.WatchState // current handover
}

type readyFile struct {
	path  string
	stamp fsys.Stamp
	hash  string
	order uint64
	at    time.Time // time at which the file was ready
}

func newBatch() *batch { return &batch{files: map[string]*readyFile{}} }

// add adds a file to the batch, or replaces an older version of it.
func (b *batch) add(c candidate, now time.Time) {
	if len(b.files) == 0 {
		b.since = now
	}
	if b.has(c.Path, c.stamp) {
		return
	}

	b.count++
	b.files[c.Path] = &readyFile{c.Path, c.stamp, c.hash, b.count, now}
}

func (b *batch) has(path string, st fsys.Stamp) bool {
	g, ok := b.files[path]
	return ok && g.stamp.Same(st)
}

// batchDue returns the time at which the ready files become a run. A full batch is due at once.
// Otherwise the batch is due when the folder has been quiet for a settle window, or when its first
// file has waited for MaxWait. The time is zero if no file is ready.
func (f *candidates) batchDue() time.Time {
	switch {
	case f.Collect.When != "":
		return f.collectDue()
	case len(f.batch.files) == 0:
		return time.Time{}
	case len(f.batch.files) >= f.MaxFiles:
		return latest(f.batch.since, f.batch.retry)
	}
	return latest(f.partialBatchDue(f.batch.since), f.batch.retry)
}

// partialBatchDue returns the time at which a batch that is not full becomes a run: as soon as the
// folder is quiet, or MaxWait after since. Files that are held back do not count.
func (f *candidates) partialBatchDue(since time.Time) time.Time {
	enough := since.Add(f.MaxWait)
	if quiet := f.debouncer.LastChange.Add(f.Settle); f.debouncer.Len() <= f.waiting.Len() && len(f.hashing) == 0 && quiet.Before(enough) {
		return quiet
	}
	return enough
}

func latest(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// enqueueBatch queues runs for the ready files if the batch is due. It commits each run together
// with the claims of its files.
func (f *candidates) enqueueBatch(ctx context.Context) {
	f.beginCollecting(ctx)
	if at := f.batchDue(); at.IsZero() || time.Now().Before(at) {
		return
	}

	files := f.stillReady()
	if f.Collect.When != "" && !f.collect(ctx, len(files)) {
		return
	}
	for len(files) >= f.MaxFiles || len(files) > 0 && (f.Collect.When != "" || !time.Now().Before(f.partialBatchDue(f.batch.since))) {
		n := min(len(files), f.MaxFiles)
		request := f.batchRequest(files[:n], len(files)-n)
		if n == len(files) {
			request.Watch = f.batch.handover
		}
		if !f.enqueue(ctx, request) {
			f.batch.retry = time.Now().Add(time.Second) // the files stay in the batch
			return
		}

		for _, g := range files[:n] {
			delete(f.batch.files, g.path)
			f.markKnown(g.path, g.stamp)
		}

		// The wait of the remaining files begins with the first of them.
		if files = files[n:]; len(files) > 0 {
			f.batch.since = files[0].at
		}
	}
	if f.batch.handover != nil {
		f.batch.collected, f.batch.handover = f.batch.handover.Collected, nil
		f.publishHandover()
	}
}

// stillReady returns the files that have not changed since they were ready, in the order in which
// they became ready. Changed files are debounced again.
func (f *candidates) stillReady() []*readyFile {
	all := slices.SortedFunc(maps.Values(f.batch.files), func(a, b *readyFile) int { return cmp.Compare(a.order, b.order) })
	return slices.DeleteFunc(all, func(g *readyFile) bool {
		info, err := os.Lstat(g.path)
		if err == nil && fsys.StampOf(info).Same(g.stamp) {
			return false
		}

		delete(f.batch.files, g.path)
		if err == nil && info.Mode().IsRegular() {
			f.debouncer.Observe(g.path, time.Now(), fsys.StampOf(info), settle.Changed)
		}
		return true
	})
}

func (f *candidates) batchRequest(files []*readyFile, more int) ledger.Request {
	r := ledger.Request{Job: f.Job, Agent: f.Agent, Trigger: domain.TriggerWatch, Detail: ledger.TriggerDetail{More: more, Definition: f.Definition}, Breaker: f.breaker()}
	for _, g := range files {
		r.Detail.Files = append(r.Detail.Files, fileOf(g.path, g.stamp, g.hash))
		r.Claims = append(r.Claims, claimOf(f.Job, g.path, g.stamp, g.hash))
	}
	return r
}
