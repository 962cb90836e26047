package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"rouse/agent/tool"
	"rouse/agent/tool/file"
	"rouse/agentdb"
	"rouse/agentdb/ledger"
	"rouse/internal/domain"
	"rouse/internal/text"
)

// The parts of what a run wrote that can be taken back.
const (
	UndoFiles    = "files"
	UndoDatabase = "database"
)

// UndoSpec says how a run is taken back.
type UndoSpec struct {
	By     agentdb.By
	Reason string // who asks, as the event of it says
	Only   string // UndoFiles or UndoDatabase; "" is both
	Force  bool   // what came later and stands in the way is lost
	DryRun bool   // only say what would become of it
	// Progress, when set, hears how many of the run's entries of the changelog are done.
	Progress func(done, of int64)
}

// Undone is what was taken back of a run, or would be.
type Undone struct {
	Done     bool // nothing that could be taken back is left
	CanUndo  bool // nothing stands against it
	Files    []file.Undone
	Database agentdb.Undone
	Left     []string // what the run did and what stays
}

// Any says whether there is, or was, anything to take back.
func (u Undone) Any() bool { return len(u.Files) > 0 || u.Database.Changes > 0 }

// Undo takes back what a run wrote: its changes of files and of its agent's database, both or,
// where something came later, neither. The files come first, since most can go wrong there; each
// of them, and the database as a whole, knows by itself that it was taken back, so that an
// undo which a crash has cut off is finished by making it again.
func (r *Runner) Undo(ctx context.Context, run ledger.Run, spec UndoSpec) (Undone, error) {
	out := Undone{Database: agentdb.Undone{Run: run.ID, CanUndo: true, Tables: []agentdb.UndoneTable{}, Schema: []string{}, Conflicts: []agentdb.Conflict{}, Left: []string{}}}
	var err error
	if spec.Only != UndoDatabase {
		if out.Files, _, err = file.UndoRun(ctx, r.ledger, run.ID, spec.Force, true); err != nil {
			return out, err
		}
	}

	out.CanUndo, out.Done = free(out.Files), !spec.DryRun && len(out.Files) == 0
	if spec.Only != UndoFiles && r.keepsRows(run.Agent) {
		// It refuses by itself; where files are to be changed before it, it is asked first.
		if out.Database, err = r.undoDatabase(ctx, run, spec, spec.DryRun || len(out.Files) > 0); err != nil {
			return out, err
		}
		out.CanUndo, out.Done = out.CanUndo && out.Database.CanUndo, out.Done && out.Database.Done
	}

	if !spec.DryRun && len(out.Files) > 0 && (out.CanUndo || spec.Force) {
		if err := r.takeBack(ctx, run, spec, &out); err != nil {
			return out, err
		}
	}

	if out.Left, err = r.left(ctx, run, out, spec); err != nil {
		return out, err
	}
	if !out.Done || !out.Any() {
		return out, nil
	}

	data, err := json.Marshal(map[string]any{"by": spec.Reason, "done": true, "forced": spec.Force, "changes": out.Database.Changes, "files": len(out.Files), "conflicts": out.Database.InTheWay})
	if err != nil {
		return out, err
	}

	return out, r.ledger.AppendEvents(ctx, ledger.Event{Run: run.ID, Job: run.Job, Kind: "run.undone", Data: data})
}

// takeBack changes the files, then the database, which were asked before.
func (r *Runner) takeBack(ctx context.Context, run ledger.Run, spec UndoSpec, out *Undone) (err error) {
	if out.Files, _, err = file.UndoRun(ctx, r.ledger, run.ID, spec.Force, false); err != nil {
		return err
	}

	out.Done = spec.Force || free(out.Files)
	if out.Done && spec.Only != UndoFiles && out.Database.Changes > 0 {
		if out.Database, err = r.undoDatabase(ctx, run, spec, false); err != nil {
			return fmt.Errorf("the files of run %d were taken back, and its database was not; repeat the undo: %w", run.ID, err)
		}
		out.Done = out.Database.Done
	}

	return nil
}

// keepsRows says whether an agent may have a database: asking for one makes it.
func (r *Runner) keepsRows(agent string) bool {
	a, known := r.plan.Load().Agents[agent]
	return !known || a.Database
}

func (r *Runner) undoDatabase(ctx context.Context, run ledger.Run, spec UndoSpec, dry bool) (agentdb.Undone, error) {
	db, release, err := r.databases.Get(ctx, run.Agent)
	if err != nil {
		return agentdb.Undone{}, err
	}
	defer release()
	return db.Undo(ctx, spec.By, agentdb.UndoSpec{Run: run.ID, Force: spec.Force, DryRun: dry, Progress: spec.Progress})
}

// free says whether nothing stands in the way of taking files back.
func free(files []file.Undone) bool {
	for _, f := range files {
		if f.Why != "" {
			return false
		}
	}
	return true
}

// maxLeft is how many of the calls are named whose effects stay.
const maxLeft = 20

// left names what a run did and no undo reaches: commands, requests, notices, artifacts, and the
// files of which nothing was kept.
func (r *Runner) left(ctx context.Context, run ledger.Run, u Undone, spec UndoSpec) ([]string, error) {
	out := append([]string{}, u.Database.Left...)
	if spec.Only == UndoDatabase {
		ops, err := r.ledger.FileOps(ctx, ledger.FileOpFilter{Run: run.ID, Limit: -1})
		if err != nil {
			return nil, err
		}

		for _, op := range ops {
			if op.UndoneAt.IsZero() {
				out = append(out, "the file "+op.Path+" stays as the run left it")
			}
		}
	}

	if spec.Only == UndoFiles {
		out = append(out, "what the run wrote into its database stays")
	}

	for _, f := range u.Files {
		if f.Lost != "" {
			out = append(out, fmt.Sprintf("the file %s stays as the run left it: %s", f.Path, f.Lost))
		}
	}

	artifacts, err := r.ledger.Artifacts(ctx, run.ID)
	if err != nil {
		return nil, err
	}

	for _, a := range artifacts {
		out = append(out, fmt.Sprintf("the artifact %s stays (rouse artifact %d)", a.Name, a.ID))
	}

	calls, err := r.effects(ctx, run)
	if more := len(calls) - maxLeft; more > 0 {
		calls = append(calls[:maxLeft], fmt.Sprintf("what %d more calls did stays", more))
	}

	return append(out, calls...), err
}

// effects are the calls of a run that did something beside its files and its database.
func (r *Runner) effects(ctx context.Context, run ledger.Run) (out []string, err error) {
	calls, err := r.ledger.Calls(ctx, run.ID)
	if err != nil {
		return nil, err
	}

	ops, err := r.ledger.FileOps(ctx, ledger.FileOpFilter{Run: run.ID, Limit: -1})
	if err != nil {
		return nil, err
	}

	kept := map[string]bool{} // keys of calls whose files can be taken back
	for _, op := range ops {
		kept[op.Batch] = true
	}

	for _, c := range calls {
		if c.Effect == domain.EffectRead {
			continue
		}

		did := "did"
		switch c.State {
		case domain.CallDone:
		case domain.CallFailed, domain.CallUncertain:
			if c.Effect != domain.EffectExternal || refusedCall(c) {
				continue
			}
			did = "may have done"
		default:
			continue
		}

		s := r.specs.Find(c.Tool)
		switch {
		case s.Writes == tool.WritesNotice:
			out = append(out, "the notice stays: "+excerptOf(s, c))
		case s.Writes == tool.WritesWake:
			out = append(out, fmt.Sprintf("the next run that it planned stays; see: rouse slot %s", run.Agent))
		case !undone(s.Writes, c.State, kept[c.Key]):
			out = append(out, fmt.Sprintf("what %s %s stays%s: %s", c.Tool, did, map[bool]string{true: ", but for the files named above"}[kept[c.Key]], excerptOf(s, c)))
		}
	}

	return out, nil
}

// undone says whether an undo of the run takes back what a call wrote, or names it elsewhere. kept
// says that the files that the call changed were kept as they were before.
func undone(writes tool.Writes, state domain.CallState, kept bool) bool {
	switch writes {
	case tool.WritesNothing, tool.WritesRows, tool.WritesArtifact, tool.WritesBack:
		return true
	case tool.WritesFiles:
		return kept
	case tool.WritesForeseen: // what was foreseen of a command is all that it did
		return kept && state == domain.CallDone
	}
	return false
}

// refusedCall says whether a call that failed was never made.
func refusedCall(c ledger.Call) bool {
	var e tool.Envelope
	return json.Unmarshal(c.Envelope, &e) == nil && slices.Contains([]tool.Kind{tool.KindRejected, tool.KindUserDenied, tool.KindInvalidArgs, tool.KindToolNotFound}, e.Kind)
}

// excerptOf is a call on a line.
func excerptOf(s tool.Spec, c ledger.Call) string {
	const most = 120

	return cmp.Or(text.Truncate(text.Collapse(CallText(s, c.Args)), most), "{}")
}

// rewrites are the calls whose changes of files were taken back since: another attempt makes
// them anew. What the run itself took back by a call stays as it is.
func (r *Runner) rewrites(ctx context.Context, run ledger.Run, calls []ledger.Call) ([]string, error) {
	ops, err := r.ledger.FileOps(ctx, ledger.FileOpFilter{Run: run.ID, Limit: -1})
	if err != nil {
		return nil, err
	}

	own := func(op ledger.FileOp) bool {
		for _, c := range calls {
			if r.specs.Find(c.Tool).Writes == tool.WritesBack && !op.UndoneAt.Before(c.StartedAt) && (c.FinishedAt.IsZero() || !op.UndoneAt.After(c.FinishedAt)) {
				return true
			}
		}
		return false
	}

	var out []string
	back := map[string]bool{}
	for _, op := range ops { // the newest first: what was made anew since decides
		if _, known := back[op.Batch]; known {
			continue
		}
		if back[op.Batch] = !op.UndoneAt.IsZero() && !own(op); back[op.Batch] {
			out = append(out, op.Batch)
		}
	}

	return out, nil
}
