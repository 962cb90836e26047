package control

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strconv"

	"rouse/agent/model/replay"
	"rouse/agent/undo"
	"rouse/agentdb/changelog"
	"rouse/cmd/internal/api"
	"rouse/internal/ledger"
)

// Undo reverts the changes of a finished run to files and to the database of its agent. It calls
// progress with the number of reverted changelog entries.
func (x *Runs) Undo(ctx context.Context, run ledger.Run, ask api.UndoRequest, progress func(done, of int64)) (api.Undo, error) {
	done, err := x.Runner.Undoing.Undo(ctx, run, undo.Options{By: changelog.By{Actor: "user"}, Reason: "user", Only: ask.Only, Force: ask.Force, DryRun: ask.DryRun, Disown: true, Progress: progress})
	if err != nil {
		return api.Undo{}, err
	}

	out := api.Undo{Run: strconv.FormatInt(run.ID, 10), Agent: run.Agent, Done: done.Done, CanUndo: done.CanUndo, Files: []api.UndoneFile{}, Checkout: done.Checkout, Database: done.Database, Left: done.Left}
	// A hash means that the file existed. The client needs no more than that.
	for _, f := range done.Files {
		out.Files = append(out.Files, api.UndoneFile{Path: f.Path, Type: string(f.Type), Before: f.BeforeHash != "", After: f.AfterHash != "", Why: f.Why})
	}
	return out, nil
}

// Cancelled finalizes a run that was cancelled while it waited for an answer. Such a run has no
// attempt that could undo its writes.
func (x *Runs) Cancelled(ctx context.Context, run ledger.Run) {
	res := x.Runner.Undoing.OnFinalize(ctx, run, ledger.Result{Outcome: run.Outcome})
	if res.Error != "" {
		x.Logger.Info("a run was cancelled while it waited", "job", run.Job, "run", run.ID, "database", res.Error)
	}
}

// Recording exports the record of a finished run as a file. It works even if the configuration
// cannot be used.
func (x *Runs) Recording(ctx context.Context, run int64) ([]byte, error) {
	rec, err := x.recording(ctx, run)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = replay.Write(&out, rec)
	return out.Bytes(), err
}

func (x *Runs) recording(ctx context.Context, run int64) (replay.Recording, error) {
	rec, err := x.Runner.ExportRecording(ctx, run)
	if err != nil && !errors.Is(err, ledger.ErrNotFound) {
		err = &api.Error{Status: http.StatusConflict, Message: err.Error()}
	}
	return rec, err
}
