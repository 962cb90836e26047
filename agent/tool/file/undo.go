package file

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"rouse/agent/tool"
	"rouse/agentdb/ledger"
	"rouse/internal/atomicfile"
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

// Undo takes back one change of a file, which is op of log. It refuses, with a *tool.PathError,
// when the file was changed since, unless force says that this does not matter; what cannot be
// restored at all is refused always. It uses the folder that was granted to the run.
func Undo(ctx context.Context, log Log, op ledger.FileOp, force bool) error {
	roots, err := tool.NewRoots(op.Root, nil)
	if err != nil {
		return &tool.PathError{Kind: tool.KindNotFound, Message: fmt.Sprintf("the folder of %s is gone: %v", op.Path, err)}
	}
	return undo(ctx, log, roots, op, force)
}

// whyNotUndoable says why a change cannot be taken back now, "" when it can.
func whyNotUndoable(roots *tool.Roots, op ledger.FileOp) string {
	p, old, err := openChanged(roots, op)
	if err != nil {
		return err.Error()
	}
	defer p.Close()
	return undoObstacle(p, op, old, func(string) bool { return false })
}

// undoObstacle says why a change cannot be taken back from what is at its place now; gone are the
// paths at which there will be nothing by then.
func undoObstacle(p *tool.FileHandle, op ledger.FileOp, now fileState, gone func(path string) bool) string {
	if why := contentObstacle(op, now); why != "" || op.Type != ledger.FileDirCreate {
		return why
	}

	switch more, err := hasOtherContent(p, gone); {
	case err != nil:
		return err.Error()
	case more:
		return "the folder holds something by now"
	}
	return ""
}

// openChanged is where the file of a change is, and what it holds now.
func openChanged(roots *tool.Roots, op ledger.FileOp) (*tool.FileHandle, fileState, error) {
	p, err := roots.At(op.Path, true)
	if err != nil {
		return nil, fileState{}, err
	}

	look := readCurrent
	if byCommand(op) {
		look = readAny
	}

	old, err := look(p, op.Path)
	if err != nil {
		return nil, old, errors.Join(err, p.Close())
	}

	return p, old, nil
}

// hasHash says whether a file holds what has a hash; "" is that of no file.
func (b fileState) hasHash(hash string) bool {
	if b.info == nil {
		return hash == ""
	}
	if b.info.IsDir() {
		return hash == folderHash
	}
	return hash == hashOf(b.text)
}

// contentObstacle says why a change cannot be taken back from what its file holds now.
func contentObstacle(op ledger.FileOp, now fileState) string {
	switch {
	case !op.UndoneAt.IsZero():
		return "it was undone at " + op.UndoneAt.Format(time.RFC3339)
	case op.Lost != "":
		return op.Lost
	case now.hasHash(op.AfterHash):
		return ""
	case now.hasHash(op.BeforeHash):
		return "the file is as it was before: the change did not come about, or was taken back by hand"
	case now.info == nil:
		return "the file was removed since"
	}
	return "the file was changed since"
}

// undo restores the file of a change and marks the change. A change that never came about is
// marked alone.
func undo(ctx context.Context, log Log, roots *tool.Roots, op ledger.FileOp, force bool) error {
	p, old, err := openChanged(roots, op)
	if err != nil {
		return err
	}
	defer p.Close()

	asBefore := op.Lost == "" && op.UndoneAt.IsZero() && old.hasHash(op.BeforeHash)
	why := undoObstacle(p, op, old, func(string) bool { return false })
	switch {
	case asBefore:
	case why != "" && (!force || op.Lost != "" || !op.UndoneAt.IsZero()):
		return &tool.PathError{Kind: tool.KindRejected, Message: fmt.Sprintf("the change %d/%s of %s cannot be undone: %s", op.Run, op.Batch, (&files{roots: roots}).relToWorkdir(op.Path), why)}
	case op.BeforeHash == "":
		err = removeCreated(p, old, op)
	default:
		err = restore(ctx, log, p, old, op)
	}
	if err != nil {
		return p.Explain(err)
	}
	if err := log.EndFileOp(ctx, op.ID); err != nil {
		return &hostError{err}
	}

	return nil
}

// removeCreated removes a file that was created, and the folders that were made for it, as far as
// nothing else is in them.
func removeCreated(p *tool.FileHandle, old fileState, op ledger.FileOp) error {
	if !old.unchanged(p) {
		return changedMeanwhile(op.Path)
	}
	if err := p.Remove(p.Rel); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if op.Made == "" {
		return atomicfile.SyncIn(p.Root, filepath.Dir(p.Rel))
	}

	last, err := filepath.Rel(p.Name(), op.Made)
	if err != nil {
		return err
	}

	folder := filepath.Dir(p.Rel)
	for ; folder != "." && len(folder) >= len(last); folder = filepath.Dir(folder) {
		if p.Remove(folder) != nil {
			break // something else is in it by now
		}
	}

	return atomicfile.SyncIn(p.Root, folder)
}

// restore writes what the file held before, with its permissions.
func restore(ctx context.Context, log Log, p *tool.FileHandle, old fileState, op ledger.FileOp) error {
	text, err := log.FileBefore(ctx, op.ID)
	if err != nil {
		return &hostError{err}
	}

	file, err := writeTemp(p, string(text), fs.FileMode(op.Mode))
	if err != nil {
		return err
	}
	if err := p.Announce(ctx, file.Temp()); err != nil {
		return errors.Join(&hostError{err}, file.Abort())
	}

	return commit(p, op.Path, file, old)
}

func changedMeanwhile(shown string) error {
	return &tool.PathError{Kind: tool.KindExecutionError, Message: shown + " was changed meanwhile, and was left as it is now; read it again"}
}

type operation struct {
	ID      string `json:"operation_id"`
	Run     int64  `json:"run"`
	Type    string `json:"type"` // create, write, fileEdit, move, copy, delete, dirCreate
	Path    string `json:"path"`
	At      string `json:"at"`
	CanUndo bool   `json:"can_undo"`
	Why     string `json:"why_not,omitempty"`
}

var historySpec = wideContextOnly(reading("file_operation_history", historyText, tool.ClassOther))

func (f *files) historyTool(s tool.Spec) (tool.Tool, error) {
	type args struct {
		Path  string `json:"path,omitempty" jsonschema:"of one file; all files when absent"`
		Limit int    `json:"limit,omitempty" jsonschema:"default 20, at most 100"`
	}
	return tool.Define(s, func(ctx context.Context, in tool.Invocation, a args) (tool.Envelope, error) {
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
			out[i] = operation{operationID(op, in), op.Run, string(op.Type), f.relToWorkdir(op.Path), op.At.Format(time.RFC3339), why == "", why}
		}

		return tool.Success(map[string]any{"operations": out, "count": len(out)}), nil
	})
}

// operationID is what a run calls a change: the key of the call that made it, after the number of
// the run when that was another.
func operationID(op ledger.FileOp, in tool.Invocation) string {
	if op.Run == in.Run {
		return op.Batch
	}
	return fmt.Sprintf("%d/%s", op.Run, op.Batch)
}

// recordedPath is a path as changes are recorded by.
func (f *files) recordedPath(path string) (string, error) {
	p, err := f.roots.At(path, false)
	if err != nil {
		return "", err
	}
	defer p.Close()
	return filepath.Join(p.Name(), p.Rel), nil
}

// relToWorkdir is a path as it is used from the working folder.
func (f *files) relToWorkdir(path string) string {
	if rel, err := filepath.Rel(f.roots.Workdir(), path); err == nil && filepath.IsLocal(rel) {
		return filepath.ToSlash(rel)
	}
	return filepath.ToSlash(path)
}

type undoArgs struct {
	OperationID string `json:"operation_id,omitempty" jsonschema:"as file_operation_history or the change itself gave it"`
	Path        string `json:"path,omitempty" jsonschema:"takes back all changes of this run to this file"`
}

var undoSpec = wideContextOnly(changing("file_undo", undoText, tool.WritesBack))

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
			err = undo(ctx, f.log, f.roots, op, false)
		}

		if err != nil && len(undone) > 0 {
			err = &tool.PathError{Kind: tool.KindRejected, Message: fmt.Sprintf("%v; %s after it were undone", err, text.Plural(len(undone), "change"))}
		}
		if err != nil {
			return failureOf(f.relToWorkdir(op.Path), err)
		}

		undone = append(undone, operation{ID: operationID(op, in), Run: op.Run, Type: string(op.Type), Path: f.relToWorkdir(op.Path), At: op.At.Format(time.RFC3339)})
	}

	return tool.Success(map[string]any{"undone": undone, "count": len(undone)}), nil
}

// checkBatch refuses the first of the changes that one command made while any of them cannot be
// taken back: of a file that was moved, one name must not be restored without the other.
func (f *files) checkBatch(ops []ledger.FileOp, at int) error {
	if at > 0 && ops[at-1].Batch == ops[at].Batch {
		return nil
	}

	gone := map[string]bool{}
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

// selectChanges are the changes that a call means, the newest first; none says why there are none.
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
