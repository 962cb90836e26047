package file

import (
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"rouse/agent/tool"
	"rouse/internal/fspath"
	"rouse/internal/ledger/fileop"
	"rouse/internal/text"
)

var (
	//go:embed history.md
	historyText string
	//go:embed undo.md
	undoText string

	historySpec = reading("file_operation_history", historyText, tool.ClassOther, tool.Spec{OnDemand: true, Example: `{"path":"report.md"}`})
	undoSpec    = changing("file_undo", undoText, tool.Spec{OnDemand: true, Writes: tool.WritesUndo, Example: `{"operation_id":"12"}`})
)

// Limits of file_operation_history.
const (
	defaultHistory = 20
	maxHistory     = 100
)

type operation struct {
	ID      string `json:"operation_id"`
	Batch   string `json:"batch_id"` // same for all changes by one model response
	Run     int64  `json:"run"`
	Type    string `json:"type"` // create, write, fileEdit, move, moveAway, copy, delete, dirCreate, dirDelete
	Path    string `json:"path"`
	At      string `json:"at"`
	CanUndo bool   `json:"can_undo"`
	Why     string `json:"why_not,omitempty"`
}

type historyArgs struct {
	Path  string `json:"path,omitempty" jsonschema:"of one file; all files when absent"`
	Limit int    `json:"limit,omitempty" jsonschema:"default 20, at most 100"`
}

func (f *files) history(ctx context.Context, in tool.Invocation, a historyArgs) (tool.Envelope, error) {
	if a.Limit < 0 {
		return tool.Envelope{}, tool.Refuse(tool.KindInvalidArgs, "limit must be 1 or more").WithField("limit", "1 to 100")
	}
	filter := fileop.Filter{Agent: in.Agent, Limit: min(cmp.Or(a.Limit, defaultHistory), maxHistory)}
	if a.Path != "" {
		var err error
		if filter.Path, err = f.recordedPath(a.Path); err != nil {
			return failureOf(a.Path, err)
		}
	}

	ops, err := f.log.List(ctx, filter)
	if err != nil {
		return tool.Envelope{}, err
	}
	out := make([]operation, len(ops))
	for i, op := range ops {
		out[i] = f.operationOf(op, in)
		out[i].Why = whyNotUndoable(f.roots, op)
		out[i].CanUndo = out[i].Why == ""
	}
	return tool.Success(map[string]any{"operations": out, "count": len(out)}), nil
}

func (f *files) operationOf(op fileop.Op, in tool.Invocation) operation {
	return operation{ID: operationID(op, in), Batch: batchID(op), Run: op.Run, Type: string(op.Type), Path: f.relToWorkdir(op.Path), At: op.At.Format(time.RFC3339)}
}

// operationID returns the id by which a run refers to a change. The id is the key of the call,
// prefixed with the run number if the change belongs to another run.
func operationID(op fileop.Op, in tool.Invocation) string {
	if op.Run == in.Run {
		return op.Batch
	}
	return fmt.Sprintf("%d/%s", op.Run, op.Batch)
}

// batchID returns an id that is the same for the changes of all calls in one model response.
func batchID(op fileop.Op) string { return fmt.Sprintf("%d/%s", op.Run, tool.AnswerKey(op.Batch)) }

// recordedPath returns a path in the form in which changes record it.
func (f *files) recordedPath(path string) (string, error) {
	p, err := f.roots.Resolve(path, false)
	if err != nil {
		return "", err
	}
	defer p.Close()
	return filepath.Join(p.Name(), p.Rel), nil
}

// relToWorkdir returns a path as a call in the working folder would write it.
func (f *files) relToWorkdir(path string) string {
	return filepath.ToSlash(fspath.Shorten(f.roots.Workdir(), path))
}

type undoArgs struct {
	OperationID string `json:"operation_id,omitempty" jsonschema:"as file_operation_history or the change itself gave it"`
	Path        string `json:"path,omitempty" jsonschema:"undo all changes of this run to this file"`
}

func (f *files) undo(ctx context.Context, in tool.Invocation, a undoArgs) (tool.Envelope, error) {
	ops, err := f.selectChanges(ctx, in, a)
	if err != nil {
		return tool.Envelope{}, err
	}

	undone := []operation{}
	for i, op := range ops {
		err := f.checkBatch(ops, i)
		if err == nil {
			err = undo(ctx, f.log, f.locks, f.roots, f.roots, op, false)
		}
		if err != nil && len(undone) > 0 {
			err = tool.RefusePath(tool.KindRejected, "%v; %s after it were undone", err, text.Plural(len(undone), "change"))
		}
		if err != nil {
			return failureOf(f.relToWorkdir(op.Path), err)
		}
		undone = append(undone, f.operationOf(op, in))
	}
	return tool.Success(map[string]any{"undone": undone, "count": len(undone)}), nil
}

// checkBatch returns an error at the first change of a batch if any change of the batch cannot be
// undone. Otherwise one name of a moved file could be restored without the other.
func (f *files) checkBatch(ops []fileop.Op, at int) error {
	if at > 0 && ops[at-1].Batch == ops[at].Batch {
		return nil
	}

	gone := map[string]bool{} // paths that the undo removes
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
		// A file in its old state is no obstacle, because its change is only marked.
		if p.Close(); why != "" && !now.hasHash(op.BeforeHash) {
			return tool.RefusePath(tool.KindRejected, "the change %s cannot be undone: %s: %s", op.Batch, f.relToWorkdir(op.Path), why)
		}
	}
	return nil
}

// selectChanges returns the changes that a call refers to, newest first.
func (f *files) selectChanges(ctx context.Context, in tool.Invocation, a undoArgs) (ops []fileop.Op, err error) {
	unknown := tool.Refuse(tool.KindNotFound, "there is no change %q; see file_operation_history", a.OperationID)
	filter, path := fileop.Filter{Agent: in.Agent, Run: in.Run, Batch: a.OperationID, Limit: -1}, ""
	if run, key, of := strings.Cut(a.OperationID, "/"); of {
		n, err := strconv.ParseInt(run, 10, 64)
		if err != nil || n <= 0 || key == "" {
			return nil, unknown
		}
		filter.Run, filter.Batch = n, key
	}
	if a.Path != "" {
		if path, err = f.recordedPath(a.Path); err != nil {
			return nil, err
		}
	}
	all, err := f.log.List(ctx, filter)
	if err != nil {
		return nil, err
	}

	touching := map[string]bool{} // calls that changed the path; a move has two paths
	for _, op := range all {
		touching[op.Batch] = touching[op.Batch] || op.Path == path
	}

	for _, op := range all {
		switch {
		case a.OperationID == "" && !op.UndoneAt.IsZero(), a.OperationID == "" && path != "" && !touching[op.Batch]:
			continue
		case len(ops) > 0 && (path == "" || a.OperationID != "") && op.Batch != ops[0].Batch:
			continue // only the last call
		}
		ops = append(ops, op)
	}

	const instead = "; give the operation_id of an earlier one, as file_operation_history has it"
	switch {
	case len(ops) == 0 && a.OperationID != "":
		return nil, unknown
	case len(ops) == 0 && path != "":
		return nil, tool.Refuse(tool.KindNotFound, "this run has made no change to %s that could be undone%s", a.Path, instead)
	case len(ops) == 0:
		return nil, tool.Refuse(tool.KindNotFound, "this run has made no change that could be undone%s", instead)
	case a.OperationID != "" && path != "" && !touching[ops[0].Batch]:
		return nil, tool.RefusePath(tool.KindInvalidArgs, "change %s is of %s, not of %s; give one of the two", a.OperationID, f.relToWorkdir(ops[0].Path), a.Path)
	}
	return ops, nil
}
