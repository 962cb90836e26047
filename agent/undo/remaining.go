package undo

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"rouse/agent/tool"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/fileop"
	"rouse/internal/text"
)

// maxLeft is the maximum number of calls listed in Result.Left.
const maxLeft = 20

// remaining lists the effects that undo cannot revert: commands, requests, notices, artifacts, and
// files without a copy.
func (u Undoer) remaining(ctx context.Context, run ledger.Run, res Result, spec Options) ([]string, error) {
	out := append([]string{}, res.Database.Remaining...)
	if spec.Only == Database {
		ops, err := u.Ledger.FileOps.List(ctx, fileop.Filter{Run: run.ID, Limit: -1})
		if err != nil {
			return nil, err
		}

		for _, op := range ops {
			if op.UndoneAt.IsZero() {
				out = append(out, "the file "+op.Path+" stays as the run left it")
			}
		}
	}

	if spec.Only == Files {
		out = append(out, "what the run wrote into its database stays")
	}

	for _, f := range res.Files {
		if f.NoUndoReason != "" {
			out = append(out, fmt.Sprintf("the file %s stays as the run left it: %s", f.Path, f.NoUndoReason))
		}
	}

	artifacts, err := u.Ledger.Artifacts.List(ctx, run.ID)
	if err != nil {
		return nil, err
	}

	for _, a := range artifacts {
		out = append(out, fmt.Sprintf("the artifact %s stays (rouse artifact %d)", a.Name, a.ID))
	}

	calls, err := u.remainingEffects(ctx, run, res.Checkout != "")
	if more := len(calls) - maxLeft; more > 0 {
		calls = append(calls[:maxLeft], fmt.Sprintf("what %d more calls did stays", more))
	}

	return append(out, calls...), err
}

// remainingEffects describes the calls with effects beyond files and database. Effects inside a
// clone vanish with the clone.
func (u Undoer) remainingEffects(ctx context.Context, run ledger.Run, cloned bool) (out []string, err error) {
	calls, err := u.Ledger.Steps.Calls(ctx, run.ID)
	if err != nil {
		return nil, err
	}

	ops, err := u.Ledger.FileOps.List(ctx, fileop.Filter{Run: run.ID, Limit: -1})
	if err != nil {
		return nil, err
	}

	kept := map[string]bool{} // keys of calls with files that can be undone
	for _, op := range ops {
		kept[op.Batch] = true
	}

	unknown := map[string]bool{} // keys of interrupted calls; a later attempt may have told a model about them
	for _, c := range calls {
		s := u.Specs.Find(c.Tool)
		did := effectOf(s, c)
		switch {
		case c.State == domain.CallFailed && unknown[c.Key]: // it was not repeated
			continue
		case c.State == domain.CallUncertain:
			unknown[c.Key] = true
		}

		switch {
		case did == "" || s.Path != "" && u.isGone(s, c):
		case s.Writes == tool.WritesNotice:
			out = append(out, "the notice stays: "+excerptOf(s, c))
		case s.Writes == tool.WritesWake:
			out = append(out, fmt.Sprintf("the next run that it planned stays; see: rouse wake %s", run.Agent))
		case !undoable(s.Writes, c.State, kept[c.Key]):
			if cloned {
				did += " outside of its clone"
			}
			out = append(out, fmt.Sprintf("what %s %s stays%s: %s", c.Tool, did, map[bool]string{true: ", but for the files named above"}[kept[c.Key]], excerptOf(s, c)))
		}
	}

	return out, nil
}

// effectOf describes how certain it is that a call had an effect beyond the database. It returns ""
// if the call had no such effect.
func effectOf(s tool.Spec, c ledger.Call) string {
	var e tool.Envelope
	if len(c.Envelope) > 0 && json.Unmarshal(c.Envelope, &e) != nil {
		e = tool.Envelope{} // ignore a damaged record
	}

	switch {
	case c.Effect == domain.EffectRead:
		return ""
	case c.State == domain.CallDone && s.Writes == tool.WritesPlanned && failedProgram(e.Result):
		return "may have done before it failed"
	case c.State == domain.CallDone:
		return "did"
	case c.State != domain.CallFailed && c.State != domain.CallUncertain:
		return ""
	case c.Effect != domain.EffectExternal || neverBegan(s, e.Kind):
		return ""
	case c.State == domain.CallUncertain:
		return "may have done" // the result is unknown
	}
	return "may have done before it failed" // the external effect may have happened before the failure
}

func neverBegan(s tool.Spec, kind tool.Kind) bool {
	switch kind {
	case tool.KindRejected, tool.KindUserDenied, tool.KindInvalidArgs, tool.KindToolNotFound:
		return true
	case tool.KindNotFound, tool.KindUnavailable:
		// For a program see shell.StartFailure. A server may also return these kinds after an
		// effect.
		return s.Writes == tool.WritesPlanned || s.Requires == tool.RequiresExecutor
	}
	return false
}

// failedProgram reports whether a result is that of a program with a non-zero exit code.
func failedProgram(result json.RawMessage) bool {
	var r struct {
		ExitCode int    `json:"exit_code"`
		Text     string `json:"text"`
	}
	if json.Unmarshal(result, &r) != nil {
		return false
	}

	exit, _, said := strings.Cut(strings.TrimPrefix(r.Text, "Exit code: "), "\n")
	return r.ExitCode != 0 || said && strings.HasPrefix(r.Text, "Exit code: ") && exit != "0"
}

// isGone reports whether a file that a call wrote, and that undo cannot revert, no longer exists.
func (u Undoer) isGone(s tool.Spec, c ledger.Call) bool {
	var args map[string]json.RawMessage
	var path string
	if s.Writes != tool.WritesElsewhere || u.Workdir == "" || json.Unmarshal(c.Args, &args) != nil || json.Unmarshal(args[s.Path], &path) != nil {
		return false
	}

	if !filepath.IsAbs(path) {
		path = filepath.Join(u.Workdir, path)
	}
	_, err := u.Boundary.Stat(path)
	return errors.Is(err, fs.ErrNotExist)
}

// undoable reports whether an undo reverts a call's writes, or lists them elsewhere. kept reports
// whether copies of the changed files exist.
func undoable(writes tool.Writes, state domain.CallState, kept bool) bool {
	switch writes {
	case tool.WritesNothing, tool.WritesRows, tool.WritesArtifact, tool.WritesUndo:
		return true
	case tool.WritesFiles: // an unrecorded write was a dry run or changed nothing
		return true
	case tool.WritesPlanned: // a successful command changed only the planned files
		return kept && state == domain.CallDone
	}
	return false
}

func excerptOf(s tool.Spec, c ledger.Call) string {
	const most = 120

	return cmp.Or(text.Truncate(text.Collapse(s.CallText(c.Args)), most), "{}")
}
