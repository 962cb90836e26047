package watcher

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"rouse/internal/nofollow"
)

// report is what the status of a folder shows.
type report struct {
	*place

	mu         sync.Mutex
	status     Status
	missing    bool
	inTheWay   string    // a link that is not followed, while the folder is missing for it
	phase      State     // of a folder that converges
	scanning   time.Time // since when; zero when it is not
	unreadable map[string]string
}

// reportUnreadable reports a file or folder that cannot be read, once; each scan tries it again.
func (r *report) reportUnreadable(ctx context.Context, path string, err error) {
	r.mu.Lock()
	_, reported := r.unreadable[path]
	r.unreadable[path] = err.Error()
	r.mu.Unlock()
	if reported {
		return
	}

	r.w.log.Warn("a file cannot be read; it is tried again", "job", r.Job, "path", path, "error", err)
	r.event(ctx, "watch.unreadable", 0, map[string]any{"path": path, "error": err.Error()})
}

// reportMissing tells the owner once why the folder is not watched, and again when another link is in
// the way to it.
func (r *report) reportMissing(ctx context.Context, err error) {
	kind, said, inTheWay := "watch.missing", "a watched folder is missing", ""
	problem := fmt.Sprintf("the folder %s cannot be read (%v); it is watched again as soon as it is there", r.Path, err)
	if link, ok := errors.AsType[*nofollow.LinkError](err); ok {
		kind, said, inTheWay = linkKind, "a watched folder is not watched: a link is in the way", link.Path
		problem = fmt.Sprintf("the folder %s is not watched: %v; it is watched again then", r.Path, err)
	}

	r.mu.Lock()
	news := !r.missing || r.inTheWay != inTheWay
	r.missing, r.inTheWay, r.status.Problem = true, inTheWay, problem
	r.mu.Unlock()
	if news {
		r.w.log.Warn(said, "job", r.Job, "path", r.Path, "error", err)
		r.event(ctx, kind, 0, map[string]any{"path": r.Path, "error": problem})
	}
}
