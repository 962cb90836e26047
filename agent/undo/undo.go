// Package undo reverts the changes of a run to files and to the database of its agent. It reverts
// both or neither, and lists the effects that cannot be reverted, such as requests and notices.
package undo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"rouse/agent/checkout"
	"rouse/agent/checkout/runclone"
	"rouse/agent/tool"
	"rouse/agent/tool/file"
	"rouse/agentdb/changelog"
	"rouse/agentdb/pool"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/nofollow"
	"rouse/internal/text"
)

// Values of Options.Only.
const (
	Files    = "files"
	Database = "database"
)

// Options selects how a run is undone.
type Options struct {
	By     changelog.By
	Reason string // actor in the event: "user" or "undo_on_failure"
	Only   string // Files or Database; "" means both
	Force  bool   // overwrite later changes that conflict
	DryRun bool   // return the result without changing anything
	Disown bool   // if the same content is dropped again, start a new run
	// Progress is called with the number of undone changelog entries. Optional.
	Progress func(done, of int64)
}

// Result describes the undone changes of a run, or those that an undo would revert.
type Result struct {
	Done     bool // everything that can be undone is undone
	CanUndo  bool // there are no conflicts
	Files    []file.Undone
	Database changelog.Undone
	Checkout string   // branch of the discarded clone; "" without a clone
	Left     []string // effects that remain

	clone bool
}

// Undoer undoes the runs of one agent.
type Undoer struct {
	Ledger    *ledger.Ledger
	Databases *pool.Pool
	Locks     *tool.Locks
	Clones    *runclone.Clones
	Placement Placement // nil unless several nodes share a ledger
	Boundary  nofollow.UntrustedDirs
	Specs     tool.Specs
	Workdir   string // workdir of the agent; "" if the agent is no longer configured
	NoRows    bool   // the agent has no database, and opening it would create one
}

// Placement moves an agent's files and database to this node.
type Placement interface {
	// Acquire moves the files and the database of an agent to this node.
	Acquire(ctx context.Context, agent string) error
	// Pin must be called before a record says that files of the agent may have changed here.
	Pin(ctx context.Context, agent string) error
}

// Any reports whether the run changed anything that can be undone.
func (u Result) Any() bool { return len(u.Files) > 0 || u.Database.Changes > 0 || u.clone }

// Undo reverts the changes of a run to files and to the database of its agent. If a later change
// conflicts, it changes neither, unless Options.Force is set. It changes files before the database.
// An undo that was interrupted by a crash can be repeated.
func (u Undoer) Undo(ctx context.Context, run ledger.Run, spec Options) (Result, error) {
	if u.Placement != nil && !spec.DryRun {
		if err := u.Placement.Acquire(ctx, run.Agent); err != nil {
			return Result{}, err
		}
	}

	out, err := u.plan(ctx, run, spec)
	if err != nil {
		return out, err
	}
	// Nothing has changed so far, so a conflict in one part also stops the other.
	if !spec.DryRun && (out.CanUndo || spec.Force) {
		if err := u.apply(ctx, run, spec, &out); err != nil {
			return out, err
		}
	}

	left, err := u.remaining(ctx, run, out, spec)
	if err != nil {
		return out, err
	}
	out.Left = append(out.Left, left...)
	if !out.Done || !out.Any() {
		return out, nil
	}

	return out, u.recordEvent(ctx, run, map[string]any{"by": spec.Reason, "done": true, "forced": spec.Force, "changes": out.Database.Changes, "files": len(out.Files), "conflicts": out.Database.ConflictCount})
}

// plan returns the changes that an undo would make, without making them.
func (u Undoer) plan(ctx context.Context, run ledger.Run, spec Options) (out Result, err error) {
	clone, err := u.Clones.Of(run)
	if err != nil && !errors.Is(err, checkout.ErrNone) {
		return out, err
	}
	out.clone = err == nil
	out.Database = changelog.Undone{Run: run.ID, CanUndo: true, Tables: []changelog.UndoneTable{}, Schema: []string{}, Conflicts: []changelog.Conflict{}, Remaining: []string{}}
	switch {
	case spec.Only == Database:
		out.clone = false
	case out.clone: // the clone is discarded as a whole
		out.Checkout = clone.Branch
		if clone.Applied != nil {
			out.Left = append(out.Left, fmt.Sprintf("the branch %s was applied to %s, which keeps its commits; git revert takes them back", clone.Branch, clone.Applied.Branch))
		}
	default:
		if out.Files, _, err = file.UndoRun(ctx, u.Ledger.FileOps, u.Locks, u.Boundary, run.ID, spec.Force, true); err != nil {
			return out, err
		}
	}
	if spec.Only != Files && !u.NoRows {
		if out.Database, err = u.undoDatabase(ctx, run, spec, true); err != nil {
			return out, err
		}
	}
	out.CanUndo = unobstructed(out.Files) && out.Database.CanUndo
	return out, nil
}

// apply changes the files, then the database.
func (u Undoer) apply(ctx context.Context, run ledger.Run, spec Options, out *Result) (err error) {
	if spec.Disown {
		if err := u.Ledger.Claims.LeaveFiles(ctx, run.ID); err != nil {
			return err
		}
	}
	if len(out.Files) > 0 {
		if out.Files, _, err = file.UndoRun(ctx, u.Ledger.FileOps, u.Locks, u.Boundary, run.ID, spec.Force, false); err != nil {
			return err
		}
	}

	if out.clone {
		if err := u.Clones.Discard(ctx, run); err != nil {
			return err
		}
	}

	if u.Placement != nil { // the undo may have restored files
		if err := u.Placement.Pin(ctx, run.Agent); err != nil {
			return err
		}
	}

	// If a new conflict has appeared, leave the database unchanged.
	out.Done = spec.Force || unobstructed(out.Files)
	if out.Done && spec.Only != Files && !u.NoRows {
		if out.Database, err = u.undoDatabase(ctx, run, spec, false); err != nil {
			return fmt.Errorf("the files of run %d were undone, and its database was not; repeat the undo: %w", run.ID, err)
		}
		out.Done = out.Database.Done
	}
	if out.Done && spec.Disown {
		return u.disownFiles(ctx, run, out)
	}
	return nil
}

func (u Undoer) disownFiles(ctx context.Context, run ledger.Run, out *Result) error {
	claims, err := u.Ledger.Claims.OfRun(ctx, run.ID)
	if err != nil {
		return err
	}
	var remain []string
	for i := range claims {
		c := &claims[i]
		path := filepath.FromSlash(c.Path)
		info, err := u.Boundary.Stat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist), err == nil && info.Size() != c.Size: // deleted, or replaced by another file
			c.ModTime = time.Time{}
			continue
		case err == nil:
			c.ModTime = info.ModTime()
		}
		remain = append(remain, fmt.Sprintf("the file %s remains and gets no run by itself; to run it again: rouse run %s --file %s --again", path, run.Job, text.ShellWord(path)))
	}
	if more := len(remain) - maxLeft; more > 0 {
		remain = append(remain[:maxLeft], fmt.Sprintf("%d more files remain and get no run by themselves", more))
	}
	out.Left = append(out.Left, remain...)
	return u.Ledger.Claims.DisownFiles(ctx, claims)
}

func (u Undoer) undoDatabase(ctx context.Context, run ledger.Run, spec Options, dry bool) (changelog.Undone, error) {
	db, release, err := u.Databases.Get(ctx, run.Agent)
	if err != nil {
		return changelog.Undone{}, err
	}
	defer release()
	return db.Undo(ctx, spec.By, changelog.UndoSpec{Run: run.ID, Force: spec.Force, DryRun: dry, Progress: spec.Progress})
}

func unobstructed(files []file.Undone) bool {
	return !slices.ContainsFunc(files, func(f file.Undone) bool { return f.Why != "" })
}

// OnFailure undoes a failed run with undo_on_failure. It adds the result of the undo to the run's
// error.
func (u Undoer) OnFailure(ctx context.Context, run ledger.Run, res ledger.Result) ledger.Result {
	spec := Options{By: changelog.By{Actor: "system"}, Reason: "undo_on_failure"}
	// Undo the run even if its context has ended because of a timeout.
	out, err := u.Undo(context.WithoutCancel(ctx), run, spec)
	say := ""
	switch {
	case err != nil:
		say = fmt.Sprintf("what it wrote into %s could not be undone: %v", out.places(), err)
	case !out.Any():
		return res
	case !out.Done:
		say = fmt.Sprintf("what it wrote into %s stays, because %d later changes stand in the way; see rouse undo %d --dry-run", out.places(), out.conflicts(), run.ID)
	default:
		say = fmt.Sprintf("what it wrote into %s was undone", out.places())
	}

	if res.Error != "" {
		res.Error += "; "
	}
	res.Error += say
	return res
}

// Wanted reports whether undo_on_failure undoes a finished attempt. A run that waits or was
// interrupted keeps its changes. If only the delivery of the branch failed, the branch stays,
// because the work is done.
func Wanted(res ledger.Result) bool {
	failed := []domain.Outcome{domain.OutcomeError, domain.OutcomeTimeout, domain.OutcomeBudget, domain.OutcomeCancelled}
	return res.Wait == nil && slices.Contains(failed, res.Outcome) && !runclone.KeepsBranch(res)
}

func (u Undoer) recordEvent(ctx context.Context, run ledger.Run, about map[string]any) error {
	data, err := json.Marshal(about)
	if err != nil {
		return err
	}
	return u.Ledger.Events.Append(ctx, ledger.Event{Run: run.ID, Job: run.Job, Kind: "run.undone", Data: data})
}

func (u Result) places() string {
	switch {
	case len(u.Files) == 0:
		return "the database"
	case u.Database.Changes == 0:
		return "files"
	}
	return "files and the database"
}

func (u Result) conflicts() int64 {
	n := u.Database.ConflictCount
	for _, f := range u.Files {
		if f.Why != "" {
			n++
		}
	}
	return n
}
