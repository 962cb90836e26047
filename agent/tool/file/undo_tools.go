package file

import (
	"context"
	_ "embed"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"rouse/agent/tool"
	"rouse/agentdb/ledger"
	"rouse/internal/fspath"
	"rouse/internal/text"
)

var (
	//go:embed history.md
	historyText string
	//go:embed undo.md
	undoText string
)

// Limits of file_operation_history (OSA-35).
const (
	defaultHistory = 20
	maxHistory     = 100
)

type operation struct {
	ID      string `json:"operation_id"`
	Batch   string `json:"batch_id"` // the same for all that the calls of one answer changed
	Run     int64  `json:"run"`
	Type    string `json:"type"` // create, write, fileEdit, move, moveAway, copy, delete, dirCreate, dirDelete
	Path    string `json:"path"`
	At      string `json:"at"`
	CanUndo bool   `json:"can_undo"`
	Why     string `json:"why_not,omitempty"`
}

var historySpec = onDemand(reading("file_operation_history", historyText, tool.ClassOther))

type historyArgs struct {
	Path  string `json:"path,omitempty" jsonschema:"of one file; all files when absent"`
	Limit int    `json:"limit,omitempty" jsonschema:"default 20, at most 100"`
}

func (f *files) historyTool(s tool.Spec) (tool.Tool, error) {
	return tool.Define(s, func(ctx context.Context, in tool.Invocation, a historyArgs) (tool.Envelope, error) {
		filter := ledger.FileOpFilter{Agent: in.Agent, Limit: defaultHistory}
		if a.Limit < 0 {
			return tool.Failure(tool.KindInvalidArgs, "limit must be 1 or more").WithField("limit", "1 to 100"), nil
		}

		if a.Limit > 0 {
			filter.Limit = min(a.Limit, maxHistory)
		}

		if a.Path != "" {
			path, err := f.recordedPath(a.Path)
			if err != nil {
				return pathFailure(a.Path, err), nil
			}
			filter.Path = path
		}

		ops, err := f.log.FileOps(ctx, filter)
		if err != nil {
			return tool.Envelope{}, err
		}

		out := make([]operation, len(ops))
		for i, op := range ops {
			why := whyNotUndoable(f.roots, op)
			out[i] = operation{operationID(op, in), batchID(op), op.Run, string(op.Type), f.relToWorkdir(op.Path), op.At.Format(time.RFC3339), why == "", why}
		}

		return tool.Success(map[string]any{"operations": out, "count": len(out)}), nil
	})
}

// operationID is how a run refers to a change: the key of the call that made it, preceded by the number
// of the run when that was another.
func operationID(op ledger.FileOp, in tool.Invocation) string {
	if op.Run == in.Run {
		return op.Batch
	}
	return fmt.Sprintf("%d/%s", op.Run, op.Batch)
}

// batchID returns an id that the changes of all calls of one answer share (OSA-07).
func batchID(op ledger.FileOp) string { return fmt.Sprintf("%d/%s", op.Run, tool.AnswerKey(op.Batch)) }

// recordedPath is the form of a path in which changes are recorded.
func (f *files) recordedPath(path string) (string, error) {
	p, err := f.roots.Resolve(path, false)
	if err != nil {
		return "", err
	}
	defer p.Close()
	return filepath.Join(p.Name(), p.Rel), nil
}

// relToWorkdir is a path as a call in the working folder would give it.
func (f *files) relToWorkdir(path string) string {
	return filepath.ToSlash(fspath.Shorten(f.roots.Workdir(), path))
}

type undoArgs struct {
	OperationID string `json:"operation_id,omitempty" jsonschema:"as file_operation_history or the change itself gave it"`
	Path        string `json:"path,omitempty" jsonschema:"undo all changes of this run to this file"`
}

var undoSpec = onDemand(changing("file_undo", undoText, tool.WritesUndo))

func (f *files) undoTool(s tool.Spec) (tool.Tool, error) { return tool.Define(s, f.undo) }

func (f *files) undo(ctx context.Context, in tool.Invocation, a undoArgs) (tool.Envelope, error) {
	ops, none, err := f.selectChanges(ctx, in, a)
	if none != nil || err != nil {
		return envelopeOrZero(none), err
	}

	undone := []operation{}
	for i, op := range ops {
		err := f.checkBatch(ops, i)
		if err == nil {
			err = undo(ctx, f.log, f.locks, f.roots, f.roots, op, false)
		}

		if err != nil && len(undone) > 0 {
			err = &tool.PathError{Kind: tool.KindRejected, Message: fmt.Sprintf("%v; %s after it were undone", err, text.Plural(len(undone), "change"))}
		}
		if err != nil {
			return failureOf(f.relToWorkdir(op.Path), err)
		}

		undone = append(undone, operation{ID: operationID(op, in), Batch: batchID(op), Run: op.Run, Type: string(op.Type), Path: f.relToWorkdir(op.Path), At: op.At.Format(time.RFC3339)})
	}

	return tool.Success(map[string]any{"undone": undone, "count": len(undone)}), nil
}

// checkBatch refuses the first of the changes that one command made while any of them cannot be undone:
// of a file that was moved, one name must not be restored without the other.
func (f *files) checkBatch(ops []ledger.FileOp, at int) error {
	if at > 0 && ops[at-1].Batch == ops[at].Batch {
		return nil
	}

	gone := map[string]bool{} // paths at which the undo leaves nothing
	for _, op := range ops[at:] {
		if op.Batch != ops[at].Batch {
			break
		}
		if gone[op.Path] = op.BeforeHash == ""; !byCommand(op) {
			continue
		}

		p, now, err := openChanged(f.roots, op)
		if err != nil {
			return err
		}

		why := undoObstacle(p, op, now, func(path string) bool { return gone[path] })
		// What is as before already does not stand in the way: it will only be marked.
		if p.Close(); why != "" && !now.hasHash(op.BeforeHash) {
			return &tool.PathError{Kind: tool.KindRejected, Message: fmt.Sprintf("the change %s cannot be undone: %s: %s", op.Batch, f.relToWorkdir(op.Path), why)}
		}
	}

	return nil
}

func envelopeOrZero(e *tool.Envelope) tool.Envelope {
	if e == nil {
		return tool.Envelope{}
	}
	return *e
}

// selectChanges finds the changes that a call means, the newest first; none says why there are none.
func (f *files) selectChanges(ctx context.Context, in tool.Invocation, a undoArgs) (ops []ledger.FileOp, none *tool.Envelope, err error) {
	nothing := func(format string, args ...any) ([]ledger.FileOp, *tool.Envelope, error) {
		e := tool.Failure(tool.KindNotFound, format, args...)
		return nil, &e, nil
	}
	filter, path := ledger.FileOpFilter{Agent: in.Agent, Run: in.Run, Batch: a.OperationID, Limit: -1}, ""
	if run, key, of := strings.Cut(a.OperationID, "/"); of {
		n, err := strconv.ParseInt(run, 10, 64)
		if err != nil || n <= 0 || key == "" {
			return nothing("there is no change %q; see file_operation_history", a.OperationID)
		}
		filter.Run, filter.Batch = n, key
	}

	if a.Path != "" {
		if path, err = f.recordedPath(a.Path); err != nil {
			e := pathFailure(a.Path, err)
			return nil, &e, nil
		}
	}

	all, err := f.log.FileOps(ctx, filter)
	if err != nil {
		return nil, nil, err
	}

	touching := map[string]bool{} // the calls that changed the path: a file that was moved has two
	for _, op := range all {
		touching[op.Batch] = touching[op.Batch] || op.Path == path
	}

	for _, op := range all {
		switch {
		case a.OperationID == "" && !op.UndoneAt.IsZero(), a.OperationID == "" && path != "" && !touching[op.Batch]:
			continue
		case len(ops) > 0 && (path == "" || a.OperationID != "") && op.Batch != ops[0].Batch:
			continue // the last call alone
		}
		ops = append(ops, op)
	}

	switch {
	case len(ops) == 0 && a.OperationID != "":
		return nothing("there is no change %q; see file_operation_history", a.OperationID)
	case len(ops) == 0 && path != "":
		return nothing("this run has made no change to %s that could be undone; give the operation_id of an earlier one, as file_operation_history has it", a.Path)
	case len(ops) == 0:
		return nothing("this run has made no change that could be undone; give the operation_id of an earlier one, as file_operation_history has it")
	case a.OperationID != "" && path != "" && !touching[ops[0].Batch]:
		e := tool.Failure(tool.KindInvalidArgs, "change %s is of %s, not of %s; give one of the two", a.OperationID, f.relToWorkdir(ops[0].Path), a.Path).WithField("path", "")
		return nil, &e, nil
	}

	return ops, nil, nil
}
