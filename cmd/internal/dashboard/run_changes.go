package dashboard

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/aymanbagabas/go-udiff"

	"rouse/agentdb"
	"rouse/cmd/internal/api"
	"rouse/cmd/internal/web"
	"rouse/internal/ledger"
	"rouse/internal/text"
)

// Bounds of what a page shows of a run's changes.
const (
	maxFiles    = 100       // changes of files that are read
	maxRows     = 300       // entries of the changelog that are read
	rowsOfTable = 10        // that are shown of each table
	maxCompared = 256 << 10 // bytes of a file of which the difference is shown
	maxDiff     = 200       // lines of it
)

// changes is what a run changed.
type changes struct {
	Files   []fileChange
	Tables  []tableChange
	DBFail  string // why the database cannot be read
	Notices []noticeOf
}

// fileChange is what a run did to a file, from before its first change to after its last.
type fileChange struct {
	Path   string
	Did    string
	Diff   []string
	Why    string // there is no difference to show
	Undone bool
}

// tableChange are the entries of a run about one table.
type tableChange struct {
	Name    string
	Entries []api.Change
	More    bool // the changelog has more than was read
}

// path leads to the entries.
func (t tableChange) path(v run) string {
	if t.Name == "" {
		return link([]string{"agents", v.Agent, "activity"}, "run", v.ID, "of", "database")
	}
	return link([]string{"agents", v.Agent, "activity"}, "run", v.ID, "table", t.Name)
}

// noticeOf is what people were told of a run.
type noticeOf struct{ Channel, Title, State, Error string }

func (s *site) changesOf(ctx context.Context, id int64, d api.RunDetail) (out changes, err error) {
	if out.Files, err = s.fileChanges(ctx, id); err != nil {
		return out, err
	}
	if out.Notices, err = s.noticesOf(ctx, id, d.Events); err != nil {
		return out, err
	}
	if out.Tables, err = s.tableChanges(ctx, id, d.Agent); err != nil {
		// Nobody can see what became of a database that cannot be opened; the run can be seen all the same.
		out.DBFail, err = err.Error(), nil
	}
	return out, err
}

func (s *site) fileChanges(ctx context.Context, run int64) ([]fileChange, error) {
	ops, err := s.ledger.FileOps(ctx, ledger.FileOpFilter{Run: run, Limit: maxFiles})
	if err != nil {
		return nil, err
	}

	// The newest come first.
	byPath := map[string][]ledger.FileOp{}
	var paths []string
	for _, op := range slices.Backward(ops) {
		if byPath[op.Path] == nil {
			paths = append(paths, op.Path)
		}
		byPath[op.Path] = append(byPath[op.Path], op)
	}

	var out []fileChange
	for _, name := range paths {
		one, err := s.fileChange(ctx, byPath[name])
		if err != nil {
			return nil, err
		}
		out = append(out, one)
	}
	return out, nil
}

// fileChange compares a file before the first of a run's changes with what it was after the last.
func (s *site) fileChange(ctx context.Context, ops []ledger.FileOp) (fileChange, error) {
	first, last := ops[0], ops[len(ops)-1]
	out := fileChange{Path: first.Path, Did: string(last.Type), Undone: !last.UndoneAt.IsZero()}
	switch {
	case last.Type == ledger.FileDirCreate, last.Type == ledger.FileDirDelete:
		return out, nil
	case first.Type == ledger.FileMoveAway:
		out.Why = "the file was moved unchanged"
		return out, nil
	case first.BeforeHash != "" && first.NoUndoReason != "":
		out.Why = "what it held before was not kept: " + first.NoUndoReason
		return out, nil
	case first.Size > maxCompared:
		out.Why = "the file is too large to compare here"
		return out, nil
	}

	var before []byte
	var err error
	if first.BeforeHash != "" {
		if before, err = s.ledger.FileBefore(ctx, first.ID); err != nil {
			return out, err
		}
	}

	after, why, err := s.contentAfter(ctx, last)
	if err != nil || why != "" {
		out.Why = why
		return out, err
	}
	if !utf8.Valid(before) || !utf8.Valid(after) {
		out.Why = "it holds no text"
		return out, nil
	}

	out.Diff = difference(string(before), string(after))
	return out, nil
}

// contentAfter is what a file held after a change: what stands there now, or what was there before the next
// change, if that is the same by its hash. why says that it cannot be known.
func (s *site) contentAfter(ctx context.Context, op ledger.FileOp) (content []byte, why string, err error) {
	if op.AfterHash == "" {
		return nil, "", nil // it was deleted
	}
	if now, err := s.readFile(op.Path); err == nil && hashOf(now) == op.AfterHash {
		return now, "", nil
	}

	later, err := s.ledger.FileOps(ctx, ledger.FileOpFilter{Agent: op.Agent, Path: op.Path, Limit: maxFiles})
	if err != nil {
		return nil, "", err
	}
	for _, next := range later {
		if next.ID > op.ID && next.BeforeHash == op.AfterHash && next.NoUndoReason == "" && next.Size <= maxCompared {
			content, err = s.ledger.FileBefore(ctx, next.ID)
			return content, "", err
		}
	}
	return nil, "it has been changed or moved since, so what the run left is not known here", nil
}

func (s *site) readFile(path string) ([]byte, error) {
	f, err := s.control.OpenFile(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()

	content, err := io.ReadAll(io.LimitReader(f, maxCompared+1))
	if err == nil && len(content) > maxCompared {
		err = errors.New("too large")
	}
	return content, err
}

func hashOf(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// difference returns the lines of a unified difference, without its head.
func difference(before, after string) []string {
	return diffLines(strings.TrimPrefix(udiff.Unified("", "", before, after), "--- \n+++ \n"), maxDiff)
}

// diffLines returns the lines of a diff as they are shown.
func diffLines(diff string, most int) []string {
	lines := strings.Split(strings.TrimSuffix(diff, "\n"), "\n")
	if len(lines) > most {
		lines = append(lines[:most], "… and "+text.Plural(len(lines)-most, "line")+" more")
	}
	for i, l := range lines {
		lines[i] = text.OneLine(text.Truncate(l, 400))
	}
	return lines
}

// tableChanges are the entries of a run in its agent's changelog, by table. An agent that never had a database is
// not given one.
func (s *site) tableChanges(ctx context.Context, run int64, agent string) ([]tableChange, error) {
	pool, err := s.control.Databases(agent)
	if err != nil || !pool.Has(agent) {
		return nil, err
	}
	var entries []api.Change
	err = s.useDB(ctx, agent, func(db *agentdb.DB) (err error) {
		entries, err = web.Changes(ctx, db, agentdb.ChangeFilter{Run: run, Newest: true, MaxCount: maxRows})
		return err
	})
	if err != nil {
		return nil, err
	}

	var out []tableChange
	for _, e := range slices.Backward(entries) {
		if e.Other {
			continue
		}
		at := slices.IndexFunc(out, func(t tableChange) bool { return t.Name == e.Table })
		if at < 0 {
			at = len(out)
			out = append(out, tableChange{Name: e.Table, More: len(entries) == maxRows})
		}
		out[at].Entries = append(out[at].Entries, e)
	}
	return out, nil
}

// noticesOf are those that were delivered or given up, which are events of the run, and those that are still to be.
func (s *site) noticesOf(ctx context.Context, run int64, events []api.Event) ([]noticeOf, error) {
	var out []noticeOf
	for _, e := range events {
		state, ok := strings.CutPrefix(e.Kind, "notice.")
		if !ok {
			continue
		}
		n := noticeOf{State: state}
		if err := json.Unmarshal(e.Data, &n); err != nil {
			return nil, err
		}
		out = append(out, n)
	}

	pending, err := s.ledger.UndeliveredNotices(ctx, maxFiles)
	for _, n := range pending {
		if n.Run == run && n.State == ledger.NoticePending {
			out = append(out, noticeOf{Channel: n.Channel, Title: n.Title, State: n.State, Error: n.Error})
		}
	}
	return out, err
}

// contentDisposition has a browser save a file under a name, whatever signs are in it.
func contentDisposition(name string) string {
	if d := mime.FormatMediaType("attachment", map[string]string{"filename": name}); d != "" {
		return d
	}
	return "attachment"
}

// maxShownDiff is how many lines of a diff the page of a run shows.
const maxShownDiff = 3000
