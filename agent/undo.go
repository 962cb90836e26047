package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"rouse/agent/checkout"
	"rouse/agent/checkout/runclone"
	"rouse/agent/tool/file"
	"rouse/agentdb"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/text"
)

// The parts of what a run wrote that can be undone.
const (
	UndoFiles    = "files"
	UndoDatabase = "database"
)

// UndoOptions says how a run is undone.
type UndoOptions struct {
	By     agentdb.By
	Reason string // who asks, as the event of it says
	Only   string // UndoFiles or UndoDatabase; "" is both
	Force  bool   // what came later and stands in the way is lost
	DryRun bool   // only say what would become of it
	Disown bool   // the content that started the run starts a new run when it is dropped again
	// Progress, when set, hears how many of the run's entries of the changelog are done.
	Progress func(done, of int64)
}

// UndoResult is what was undone of a run, or would be.
type UndoResult struct {
	Done     bool // nothing that could be undone is left
	CanUndo  bool // nothing stands against it
	Files    []file.Undone
	Database agentdb.Undone
	Checkout string   // the branch of the run's clone, both of which are discarded; "" without one
	Left     []string // what the run did and what stays

	clone bool
}

// Any says whether there is, or was, anything to undo.
func (u UndoResult) Any() bool { return len(u.Files) > 0 || u.Database.Changes > 0 || u.clone }

// Undo reverts a run's changes of files and of its agent's database: both, or neither if something
// later stands in the way. Files come first. An undo that a crash has cut off can be repeated.
func (r *Runner) Undo(ctx context.Context, run ledger.Run, spec UndoOptions) (UndoResult, error) {
	if r.homes != nil && !spec.DryRun { // where what it wrote is not, nothing of it can be undone
		if err := r.homes.Arrive(ctx, run.Agent); err != nil {
			return UndoResult{}, err
		}
	}

	out, err := r.askUndo(ctx, run, spec)
	if err != nil {
		return out, err
	}
	// Both were only asked so far, so that what stands in the way of one part stops the other.
	if !spec.DryRun && (out.CanUndo || spec.Force) {
		if err := r.applyUndo(ctx, run, spec, &out); err != nil {
			return out, err
		}
	}

	left, err := r.remaining(ctx, run, out, spec)
	if err != nil {
		return out, err
	}
	out.Left = append(out.Left, left...)
	if !out.Done || !out.Any() {
		return out, nil
	}

	return out, r.appendEvent(ctx, run, "run.undone",
		map[string]any{"by": spec.Reason, "done": true, "forced": spec.Force, "changes": out.Database.Changes, "files": len(out.Files), "conflicts": out.Database.ConflictCount})
}

// askUndo returns the changes that an undo would make, without making them.
func (r *Runner) askUndo(ctx context.Context, run ledger.Run, spec UndoOptions) (out UndoResult, err error) {
	clone, err := r.clones.Of(run)
	if err != nil && !errors.Is(err, checkout.ErrNone) {
		return out, err
	}
	out.clone = err == nil
	out.Database = agentdb.Undone{Run: run.ID, CanUndo: true, Tables: []agentdb.UndoneTable{}, Schema: []string{}, Conflicts: []agentdb.Conflict{}, Remaining: []string{}}
	switch {
	case spec.Only == UndoDatabase:
		out.clone = false
	case out.clone: // what it wrote lies in its clone, which goes as a whole
		out.Checkout = clone.Branch
		if clone.Applied != nil {
			out.Left = append(out.Left, fmt.Sprintf("the branch %s was applied to %s, which keeps its commits; git revert takes them back", clone.Branch, clone.Applied.Branch))
		}
	default:
		if out.Files, _, err = file.UndoRun(ctx, r.ledger, r.fileLocks, r.plan.Load().Boundary, run.ID, spec.Force, true); err != nil {
			return out, err
		}
	}
	if spec.Only != UndoFiles && r.keepsRows(run.Agent) {
		if out.Database, err = r.undoDatabase(ctx, run, spec, true); err != nil {
			return out, err
		}
	}
	out.CanUndo = unobstructed(out.Files) && out.Database.CanUndo
	return out, nil
}

// applyUndo changes the files, then the database.
func (r *Runner) applyUndo(ctx context.Context, run ledger.Run, spec UndoOptions, out *UndoResult) (err error) {
	if spec.Disown {
		if err := r.ledger.LeaveFiles(ctx, run.ID); err != nil {
			return err
		}
	}
	if len(out.Files) > 0 {
		if out.Files, _, err = file.UndoRun(ctx, r.ledger, r.fileLocks, r.plan.Load().Boundary, run.ID, spec.Force, false); err != nil {
			return err
		}
	}

	if out.clone {
		if err := r.clones.Discard(ctx, run); err != nil {
			return err
		}
	}

	if r.homes != nil { // some may be there again
		if err := r.homes.Settle(ctx, run.Agent); err != nil {
			return err
		}
	}

	// Something may have come in the way since they were asked; then the database stays as it is.
	out.Done = spec.Force || unobstructed(out.Files)
	if out.Done && spec.Only != UndoFiles && r.keepsRows(run.Agent) {
		if out.Database, err = r.undoDatabase(ctx, run, spec, false); err != nil {
			return fmt.Errorf("the files of run %d were undone, and its database was not; repeat the undo: %w", run.ID, err)
		}
		out.Done = out.Database.Done
	}
	if out.Done && spec.Disown {
		return r.disownFiles(ctx, run, out)
	}
	return nil
}

func (r *Runner) disownFiles(ctx context.Context, run ledger.Run, out *UndoResult) error {
	claims, err := r.ledger.ClaimsOfRun(ctx, run.ID)
	if err != nil {
		return err
	}
	var remain []string
	for i := range claims {
		c := &claims[i]
		path := filepath.FromSlash(c.Path)
		info, err := r.plan.Load().Boundary.Stat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist), err == nil && info.Size() != c.Size: // gone, or replaced by another file
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
	return r.ledger.DisownFiles(ctx, claims)
}

// keepsRows says whether an agent may have a database: asking for one makes it.
func (r *Runner) keepsRows(agent string) bool {
	a, known := r.plan.Load().Agents[agent]
	return !known || a.Database
}

func (r *Runner) undoDatabase(ctx context.Context, run ledger.Run, spec UndoOptions, dry bool) (agentdb.Undone, error) {
	db, release, err := r.databases.Get(ctx, run.Agent)
	if err != nil {
		return agentdb.Undone{}, err
	}
	defer release()
	return db.Undo(ctx, spec.By, agentdb.UndoSpec{Run: run.ID, Force: spec.Force, DryRun: dry, Progress: spec.Progress})
}

func unobstructed(files []file.Undone) bool {
	return !slices.ContainsFunc(files, func(f file.Undone) bool { return f.Why != "" })
}

// undoOnFailure undoes what a failed run wrote if its job has undo_on_failure. A run that waits or
// was interrupted keeps its changes. The result says how it went.
func (r *Runner) undoOnFailure(ctx context.Context, t *attempt, res ledger.Result) ledger.Result {
	failed := []domain.Outcome{domain.OutcomeError, domain.OutcomeTimeout, domain.OutcomeBudget, domain.OutcomeCancelled}
	if res.Wait != nil || !slices.Contains(failed, res.Outcome) {
		return res
	}
	// The work is done, and its branch waits to be sent or brought back: an undo would discard it.
	if runclone.KeepsBranch(res) {
		return res
	}
	return r.undoIfConfigured(ctx, &t.task, res)
}

// OnFinalize is undoOnFailure for a run that ends without an attempt.
func (r *Runner) OnFinalize(ctx context.Context, run ledger.Run, res ledger.Result) ledger.Result {
	t, err := r.task(run)
	if err != nil {
		return res // the job is gone, and with it what it wanted
	}
	return cleanResult(r.undoIfConfigured(ctx, t, res), t.redactor())
}

// undoIfConfigured undoes a run if its job wants that, and says so in the result.
func (r *Runner) undoIfConfigured(ctx context.Context, t *task, res ledger.Result) ledger.Result {
	if !t.job.UndoOnFailure {
		return res
	}

	spec := UndoOptions{By: agentdb.By{Actor: "system"}, Reason: "undo_on_failure"}
	// A run that took too long has no context left, and is undone all the same.
	out, err := r.Undo(context.WithoutCancel(ctx), t.run, spec)
	say := ""
	switch {
	case err != nil:
		say = fmt.Sprintf("what it wrote into %s could not be undone: %v", out.places(), err)
	case !out.Any():
		return res
	case !out.Done:
		say = fmt.Sprintf("what it wrote into %s stays, because %d later changes stand in the way; see rouse undo %d --dry-run", out.places(), out.inTheWay(), t.run.ID)
	default:
		say = fmt.Sprintf("what it wrote into %s was undone", out.places())
	}

	if res.Error != "" {
		res.Error += "; "
	}

	res.Error += say
	return res
}

func (u UndoResult) places() string {
	switch {
	case len(u.Files) == 0:
		return "the database"
	case u.Database.Changes == 0:
		return "files"
	}
	return "files and the database"
}

func (u UndoResult) inTheWay() int64 {
	n := u.Database.ConflictCount
	for _, f := range u.Files {
		if f.Why != "" {
			n++
		}
	}
	return n
}
