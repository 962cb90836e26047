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

// place holds the location of a folder, the selection of its watch, and the access to its records.
type place struct {
	Watch
	w             *Watcher
	nestedWatches []string // folders inside it that other jobs watch
	// root is Path with its owner's links resolved. It is "" while the folder is missing.
	root string
	// awaited is set while the folder is missing. It is Path with its existing links resolved.
	awaited     string
	skippedDirs map[string]bool // folders that are not entered: destinations, nested watches
	linked      linked
	partials    settle.PartialNames

	writing sync.Mutex // held while the state of the folder is written
	stopped bool       // set when the state must not be written any more
}

// findRoot returns the folder with its owner's links resolved, so that claims do not depend on
// them.
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

// openRoot opens the folder that the last scan found. The folder is not kept open, so that its
// owner can unmount or replace it.
func (p *place) openRoot() (*os.Root, error) { return p.Boundary.OpenRoot(p.root) }

// skipFolders determines the folders that are not entered.
func (p *place) skipFolders() {
	p.skippedDirs = map[string]bool{}
	for _, dir := range append(p.destinations(), p.nestedWatches...) {
		p.skippedDirs[p.resolveLinks(dir)] = true
		if real, err := filepath.EvalSymlinks(dir); err == nil {
			p.skippedDirs[real] = true // a destination inside the watched folder may be a link
		}
	}
}

// nearestExisting returns the closest existing parent of the missing folder. It does not look
// behind links that are not followed.
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

// enters reports whether the files of a folder belong to the watch.
func (p *place) enters(path, rel string) bool {
	// Any file name will do, because only its folder and the parents are checked.
	return !p.Prunes(rel) && p.inNoSkippedDir(filepath.Join(path, "x"))
}

// inNoSkippedDir reports whether a file is outside the skipped folders.
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

// selection returns the watch's selection of files.
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

// writeUnlessStopped calls do unless the folder has been stopped. After a reload, the state belongs
// to another folder of the same job. It returns context.Canceled if the folder has been stopped.
func (p *place) writeUnlessStopped(do func() error) error {
	p.writing.Lock()
	defer p.writing.Unlock()
	if p.stopped {
		return context.Canceled
	}
	return do()
}

// enqueue queues runs and reports whether they are recorded.
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

// breaker returns the rule that pauses a job which triggers itself by writing into its own folder.
func (p *place) breaker() pause.Breaker {
	b := pause.Breaker{MaxClaims: maxReclaims, Within: time.Minute}
	if p.w.breakerNotices != nil {
		b.Notices = p.w.breakerNotices(p.Job)
	}
	return b
}

// event records an event of the watch. Errors are only logged.
func (p *place) event(ctx context.Context, kind string, run int64, data map[string]any) {
	raw, err := json.Marshal(data)
	if err == nil {
		err = p.w.ledger.Events.Append(ctx, ledger.Event{Job: p.Job, Run: run, Kind: kind, Data: raw})
	}
	if err != nil && ctx.Err() == nil {
		p.w.log.Error("an event could not be recorded", "job", p.Job, "kind", kind, "error", err)
	}
}
