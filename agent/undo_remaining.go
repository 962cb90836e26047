package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"rouse/agent/tool"
	"rouse/agentdb/ledger"
	"rouse/internal/domain"
	"rouse/internal/text"
)

// maxLeft is how many of the calls are named whose effects stay.
const maxLeft = 20

// remaining names what a run did and no undo reaches: commands, requests, notices, artifacts, and the
// files of which nothing was kept.
func (r *Runner) remaining(ctx context.Context, run ledger.Run, u UndoResult, spec UndoOptions) ([]string, error) {
	out := append([]string{}, u.Database.Remaining...)
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
		if f.NoUndoReason != "" {
			out = append(out, fmt.Sprintf("the file %s stays as the run left it: %s", f.Path, f.NoUndoReason))
		}
	}

	artifacts, err := r.ledger.Artifacts(ctx, run.ID)
	if err != nil {
		return nil, err
	}

	for _, a := range artifacts {
		out = append(out, fmt.Sprintf("the artifact %s stays (rouse artifact %d)", a.Name, a.ID))
	}

	calls, err := r.remainingEffects(ctx, run)
	if more := len(calls) - maxLeft; more > 0 {
		calls = append(calls[:maxLeft], fmt.Sprintf("what %d more calls did stays", more))
	}

	return append(out, calls...), err
}

// remainingEffects are the calls of a run that did something beside its files and its database.
func (r *Runner) remainingEffects(ctx context.Context, run ledger.Run) (out []string, err error) {
	calls, err := r.ledger.Calls(ctx, run.ID)
	if err != nil {
		return nil, err
	}

	ops, err := r.ledger.FileOps(ctx, ledger.FileOpFilter{Run: run.ID, Limit: -1})
	if err != nil {
		return nil, err
	}

	kept := map[string]bool{} // keys of calls whose files can be undone
	for _, op := range ops {
		kept[op.Batch] = true
	}

	for _, c := range calls {
		if c.Effect == domain.EffectRead {
			continue
		}

		// A failed call out of the host may have had its effect all the same.
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
		case !undoable(s.Writes, c.State, kept[c.Key]):
			out = append(out, fmt.Sprintf("what %s %s stays%s: %s", c.Tool, did, map[bool]string{true: ", but for the files named above"}[kept[c.Key]], excerptOf(s, c)))
		}
	}

	return out, nil
}

// undoable says whether an undo of the run takes back what a call wrote, or names it elsewhere. kept
// says that the files that the call changed were kept as they were before.
func undoable(writes tool.Writes, state domain.CallState, kept bool) bool {
	switch writes {
	case tool.WritesNothing, tool.WritesRows, tool.WritesArtifact, tool.WritesUndo:
		return true
	case tool.WritesFiles:
		return kept
	case tool.WritesPlanned: // what was foreseen of a command is all that it did
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
