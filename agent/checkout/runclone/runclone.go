// Package runclone manages the private clone of each run. It makes the clone, collects the branch
// of the run into the owner's repository, applies or discards it, and pushes it to a server.
// Package checkout does the git work. This package connects it to the ledger, which records each
// step as an event of the run.
package runclone

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"rouse/agent/checkout"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/event"
)

// Clones manages the clones of all runs. It is safe for concurrent use. A nil *Clones has no clones
// and cannot make any.
type Clones struct {
	store  *checkout.Store
	ledger *ledger.Ledger
	redact func(string) string // removes secrets from text sent to a server
	log    *slog.Logger
	mu     sync.RWMutex // locked for writing while clones are pruned
}

// New returns the clones in a store. redact removes secrets from the text of pull requests.
func New(store *checkout.Store, l *ledger.Ledger, redact func(string) string, log *slog.Logger) *Clones {
	return &Clones{store: store, ledger: l, redact: redact, log: log}
}

// Make makes the clone of a run. A later attempt at the run gets the same clone.
func (c *Clones) Make(ctx context.Context, run ledger.Run, spec checkout.Spec) (checkout.Clone, error) {
	if c == nil {
		return checkout.Clone{}, errors.New("clones are made by a daemon with a home")
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	clone, err := c.store.Make(ctx, nameOf(run), spec)
	if err != nil {
		return clone, err
	}
	if olderThan(clone, run) {
		return clone, fmt.Errorf("%s is the clone of an older run %d, of a history that was reset; move that folder away", filepath.Dir(clone.Dir), run.ID)
	}
	return clone, c.record(ctx, run, "checkout.made", map[string]any{"repo": clone.Repo, "ref": clone.Ref, "branch": clone.Branch, "base": clone.Base, "notes": clone.Notes})
}

func nameOf(run ledger.Run) string { return strconv.FormatInt(run.ID, 10) }

// olderThan reports whether a clone belongs to another run with the same number, from a ledger that
// was reset.
func olderThan(clone checkout.Clone, run ledger.Run) bool {
	return clone.Made.Before(run.QueuedAt.Add(-time.Minute))
}

// record appends an event of a run's checkout. It skips the event if the last event of the kind has
// the same data, because steps are repeated after a crash.
func (c *Clones) record(ctx context.Context, run ledger.Run, kind string, data any) error {
	raw, err := json.Marshal(data)
	if err != nil {
		return err
	}
	events, err := c.ledger.Events.List(ctx, event.Filter{Run: run.ID, Limit: -1})
	if err != nil {
		return err
	}
	for _, e := range slices.Backward(events) {
		if e.Kind == kind {
			if string(e.Data) == string(raw) {
				return nil
			}
			break
		}
	}
	return c.ledger.Events.Append(ctx, ledger.Event{Run: run.ID, Job: run.Job, Kind: kind, Data: raw})
}

// State is the state of the checkout of a run.
type State struct {
	checkout.State
	Run int64
}

// Waiting reports whether the branch waits to be applied or discarded.
func (s State) Waiting() bool {
	return s.Result != nil && s.Applied == nil && len(s.Result.Commits) > 0
}

// Of returns the checkout of a run, or checkout.ErrNone.
func (c *Clones) Of(run ledger.Run) (State, error) {
	if c == nil {
		return State{}, checkout.ErrNone
	}
	s, err := c.store.State(nameOf(run))
	if err == nil && olderThan(s.Clone, run) {
		err = checkout.ErrNone
	}
	return State{s, run.ID}, err
}

// Waiting returns the checkouts with branches that wait to be applied or discarded, oldest first.
func (c *Clones) Waiting() (out []State, err error) {
	if c == nil {
		return nil, nil
	}
	all, err := c.store.List()
	for _, s := range all {
		id, bad := strconv.ParseInt(s.Run, 10, 64)
		if one := (State{s, id}); bad == nil && one.Waiting() {
			out = append(out, one)
		}
	}
	slices.SortFunc(out, func(a, b State) int { return cmp.Compare(a.Run, b.Run) })
	return out, err
}

// Diff returns the changes of a run's branch as text, at most limit bytes of it.
func (c *Clones) Diff(ctx context.Context, s State, limit int) (string, error) {
	if s.Result == nil {
		return "", nil
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.store.Diff(ctx, *s.Result, limit)
}

// Apply puts the commits of a finished run on the branch that its clone was made from.
func (c *Clones) Apply(ctx context.Context, run ledger.Run, how checkout.How) (checkout.Applied, error) {
	s, err := c.Of(run)
	if err != nil {
		return checkout.Applied{}, err
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	if s.Result == nil { // collecting failed when the run ended
		got, err := c.collect(ctx, run, s.Clone)
		if err != nil {
			return checkout.Applied{}, err
		}
		s.Result = &got
	}
	if len(s.Result.Commits) == 0 {
		return checkout.Applied{}, fmt.Errorf("run %d has no commits; there is nothing to apply", run.ID)
	}
	done, err := c.store.Apply(ctx, *s.Result, how)
	if err != nil {
		return done, err
	}
	return done, c.record(ctx, run, "checkout.applied", map[string]any{"how": done.How, "branch": done.Branch, "before": done.Before, "commit": done.Commit})
}

// Discard removes the clone and the branch of a finished run. Applied commits stay.
func (c *Clones) Discard(ctx context.Context, run ledger.Run) error {
	s, err := c.Of(run)
	if err != nil {
		return err
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	if err := c.store.Discard(ctx, nameOf(run)); err != nil {
		return err
	}
	return c.record(ctx, run, "checkout.discarded", map[string]any{"branch": s.Branch, "applied": s.Applied != nil})
}

// Prune removes expired clones. It keeps the clones of runs that have not ended.
func (c *Clones) Prune(ctx context.Context) error {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	removed, err := c.store.Prune(func(clone checkout.Clone) bool {
		id, err := strconv.ParseInt(clone.Run, 10, 64)
		if err != nil {
			return false
		}
		run, err := c.ledger.Runs.Get(ctx, id)
		return errors.Is(err, ledger.ErrNotFound) || err == nil && run.State == domain.StateFinished
	}, c.ledger.Now())
	for _, name := range removed {
		c.log.Info("a clone was removed, for it was neither applied nor discarded for long enough; its branch stays", "run", name)
	}
	return err
}

// Recover finishes applies that a crash interrupted. It logs an error if that fails; the owner can
// apply the run again.
func (c *Clones) Recover(ctx context.Context) {
	if c == nil {
		return
	}
	if err := c.store.Recover(ctx); err != nil {
		c.log.Error("applying a run was cut off, and could not be finished; apply it again", "err", err)
	}
}

// Usage measures the disk space of clones and mirrors.
func (c *Clones) Usage() (checkout.Usage, error) {
	if c == nil {
		return checkout.Usage{}, nil
	}
	return c.store.Usage()
}
