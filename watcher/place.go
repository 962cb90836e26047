package watcher

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"rouse/internal/ledger"
	"rouse/internal/ledger/claim"
	"rouse/internal/ledger/pause"
	"rouse/watcher/settle"
	"rouse/watcher/tree"
)

// place is where a folder is, what its watch selects there, and where its work is recorded.
type place struct {
	Watch
	w             *Watcher
	nestedWatches []string        // folders inside it that another job watches
	root          string          // Path with its owner's links resolved; "" while it is missing
	awaited       string          // while it is missing: Path with those of its links resolved that there are
	skippedDirs   map[string]bool // folders that are not entered: destinations, nested watches
	linked        linked
	partials      settle.PartialNames

	writing sync.Mutex // held while the state of the folder is written
	stopped bool       // it must not be written any more
}

// findRoot is the folder with its owner's links resolved, so that claims do not depend on them.
func (p *place) findRoot() (string, error) {
	root, err := p.Boundary.Resolve(p.Path)
	if err != nil {
		return "", err
	}

	info, err := p.Boundary.Stat(root)
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("%s is not a folder", p.Path)
	}
	return root, err
}

// openRoot opens the folder that the last scan found. It is not held open: its owner must be able to
// unmount or to replace it.
func (p *place) openRoot() (*os.Root, error) { return p.Boundary.OpenRoot(p.root) }

// skipFolders finds the folders that are not entered.
func (p *place) skipFolders() {
	p.skippedDirs = map[string]bool{}
	for _, dir := range append(p.destinations(), p.nestedWatches...) {
		p.skippedDirs[p.resolveLinks(dir)] = true
		if real, err := filepath.EvalSymlinks(dir); err == nil {
			p.skippedDirs[real] = true // within the watched folder a destination may be a link
		}
	}
}

// nearestExisting is the closest folder above the missing one that exists. Behind a link that is not
// followed nothing is waited for.
func (p *place) nearestExisting() string {
	dir := filepath.Dir(p.awaited)
	for dir != filepath.Dir(dir) {
		if info, err := p.Boundary.Stat(dir); err == nil && info.IsDir() {
			break
		}
		dir = filepath.Dir(dir)
	}

	return dir
}

// enters says whether the files of a folder belong to the watch.
func (p *place) enters(path, rel string) bool {
	// Any file name will do here: asked about are the folder and those above it.
	return !p.Prunes(rel) && p.inNoSkippedDir(filepath.Join(path, "x"))
}

// inNoSkippedDir says whether a file is in none of the folders that are skipped.
func (p *place) inNoSkippedDir(path string) bool {
	if len(p.skippedDirs) == 0 {
		return true
	}

	for dir := filepath.Dir(path); dir != p.root && dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if p.skippedDirs[dir] {
			return false
		}
	}
	return true
}

// selection returns the files that the watch selects.
func (p *place) selection() tree.Selection {
	return tree.Selection{
		Root: p.root, Include: p.Include, Exclude: p.Exclude, Recursive: p.Recursive, Links: p.FollowSymlinks,
		Closed: p.nestedWatches, Exact: p.ExactCase,
	}
}

// saveSnapshot records the trees of the folder in the ledger.
func (p *place) saveSnapshot(ctx context.Context, mem tree.Snapshot, st claim.WatchState) error {
	mem.Shape = p.selection()
	text, err := mem.Encode()
	if err != nil {
		return err
	}

	if st.Since.IsZero() {
		st.Since = time.Now()
	}

	st.Tree = text
	return p.writeUnlessStopped(func() error { return p.w.ledger.Watches.Save(ctx, st) })
}

// writeUnlessStopped writes unless the folder has been stopped: after a reload the state
// belongs to another folder of the same job.
func (p *place) writeUnlessStopped(do func() error) error {
	p.writing.Lock()
	defer p.writing.Unlock()
	if p.stopped {
		return context.Canceled
	}
	return do()
}

// enqueue queues runs, and says whether they are recorded.
func (p *place) enqueue(ctx context.Context, requests ...ledger.Request) bool {
	if ctx.Err() != nil {
		return false
	}

	accepted, err := p.w.ledger.Enqueue(ctx, requests...)
	if err != nil {
		if ctx.Err() == nil {
			p.w.log.Error("what is ready could not be recorded; it is tried again", "job", p.Job, "requests", len(requests), "error", err)
		}
		return false
	}

	for _, a := range accepted {
		if a.BreakerTripped {
			p.w.log.Warn("a job is paused: one of its files is written again and again, perhaps by itself", "job", p.Job, "run", a.Run)
		}
	}

	return true
}

// breaker stops a job that triggers itself by writing into its own folder.
func (p *place) breaker() pause.Breaker {
	b := pause.Breaker{MaxClaims: maxReclaims, Within: time.Minute}
	if p.w.breakerNotices != nil {
		b.Notices = p.w.breakerNotices(p.Job)
	}
	return b
}

// event records what happened to the watch. The watch goes on when that fails.
func (p *place) event(ctx context.Context, kind string, run int64, data map[string]any) {
	raw, err := json.Marshal(data)
	if err == nil {
		err = p.w.ledger.Events.Append(ctx, ledger.Event{Job: p.Job, Run: run, Kind: kind, Data: raw})
	}
	if err != nil && ctx.Err() == nil {
		p.w.log.Error("an event could not be recorded", "job", p.Job, "kind", kind, "error", err)
	}
}
