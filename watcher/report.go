package watcher

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"rouse/internal/nofollow"
)

// report holds the data for the status of a folder.
type report struct {
	*place

	mu      sync.Mutex
	status  Status
	missing bool
	// inTheWay is the link that makes the folder unreachable because it is not followed.
	inTheWay   string
	phase      State     // of a folder in mode converge
	scanning   time.Time // start of the current scan; zero if none is running
	unreadable map[string]string
}

// reportUnreadable reports a file or folder that cannot be read. It reports each path once, while
// each scan tries to read it again.
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

// reportMissing tells the owner once why the folder is not watched. It reports again if a different
// link is in the way.
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
