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
	"rouse/agentdb/changelog"
	"rouse/cmd/internal/api"
	"rouse/cmd/internal/web"
	"rouse/internal/ledger"
	"rouse/internal/ledger/fileop"
	"rouse/internal/text"
)

// Limits of the changes shown for a run.
const (
	maxFiles    = 100       // file changes read
	maxRows     = 300       // changelog entries read
	rowsOfTable = 10        // entries shown per table
	maxCompared = 256 << 10 // maximum size of a file to compare, in bytes
	maxDiff     = 200       // lines of a diff
)

// changes holds the changes made by a run.
type changes struct {
	Files   []fileChange
	Tables  []tableChange
	DBFail  string // why the agent's database cannot be read
	Notices []noticeOf
}

// fileChange is the change of a file from before the run's first operation to after its last.
type fileChange struct {
	Path   string
	Did    string
	Diff   []string
	Why    string // why there is no diff
	Undone bool
}

// tableChange holds the changelog entries of a run for one table.
type tableChange struct {
	Name    string
	Entries []api.Change
	More    bool // there may be more entries than were read
}

// path returns the address of the entries.
func (t tableChange) path(v run) string {
	if t.Name == "" {
		return link([]string{"agents", v.Agent, "activity"}, "run", v.ID, "of", "database")
	}
	return link([]string{"agents", v.Agent, "activity"}, "run", v.ID, "table", t.Name)
}

// noticeOf is a notice about a run.
type noticeOf struct{ Channel, Title, State, Error string }

func (s *site) changesOf(ctx context.Context, id int64, d api.RunDetail) (out changes, err error) {
	if out.Files, err = s.fileChanges(ctx, id); err != nil {
		return out, err
	}
	if out.Notices, err = s.noticesOf(ctx, id, d.Events); err != nil {
		return out, err
	}
	if out.Tables, err = s.tableChanges(ctx, id, d.Agent); err != nil {
		// Show the run even if the database cannot be opened.
		out.DBFail, err = err.Error(), nil
	}
	return out, err
}

func (s *site) fileChanges(ctx context.Context, run int64) ([]fileChange, error) {
	ops, err := s.ledger.FileOps.List(ctx, fileop.Filter{Run: run, Limit: maxFiles})
	if err != nil {
		return nil, err
	}

	// The operations are sorted newest first.
	byPath := map[string][]fileop.Op{}
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

// fileChange compares a file before the first operation of a run with the file after the last.
func (s *site) fileChange(ctx context.Context, ops []fileop.Op) (fileChange, error) {
	first, last := ops[0], ops[len(ops)-1]
	out := fileChange{Path: first.Path, Did: string(last.Type), Undone: !last.UndoneAt.IsZero()}
	switch {
	case last.Type == fileop.DirCreate, last.Type == fileop.DirDelete:
		return out, nil
	case first.Type == fileop.MoveAway:
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
		if before, err = s.ledger.FileOps.Before(ctx, first.ID); err != nil {
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

// contentAfter returns the content of a file after an operation. That is the current content, or
// the content saved before a later operation, if its hash matches. Otherwise why is the reason.
func (s *site) contentAfter(ctx context.Context, op fileop.Op) (content []byte, why string, err error) {
	if op.AfterHash == "" {
		return nil, "", nil // the operation deleted the file
	}
	if now, err := s.readFile(op.Path); err == nil && hashOf(now) == op.AfterHash {
		return now, "", nil
	}

	later, err := s.ledger.FileOps.List(ctx, fileop.Filter{Agent: op.Agent, Path: op.Path, Limit: maxFiles})
	if err != nil {
		return nil, "", err
	}
	for _, next := range later {
		if next.ID > op.ID && next.BeforeHash == op.AfterHash && next.NoUndoReason == "" && next.Size <= maxCompared {
			content, err = s.ledger.FileOps.Before(ctx, next.ID)
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

// difference returns the lines of a unified diff without its header.
func difference(before, after string) []string {
	return diffLines(strings.TrimPrefix(udiff.Unified("", "", before, after), "--- \n+++ \n"), maxDiff)
}

// diffLines returns the lines of a diff for display.
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

// tableChanges returns the changelog entries of a run by table. It does not create a missing
// database.
func (s *site) tableChanges(ctx context.Context, run int64, agent string) ([]tableChange, error) {
	pool, err := s.control.Databases(agent)
	if err != nil || !pool.Has(agent) {
		return nil, err
	}
	var entries []api.Change
	err = s.useDB(ctx, agent, func(db *agentdb.DB) (err error) {
		entries, err = web.Changes(ctx, db, changelog.Filter{Run: run, Newest: true, MaxCount: maxRows})
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

// noticesOf returns the notices of a run: delivered and failed ones from its events, and pending
// ones from the outbox.
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

	pending, err := s.ledger.Outbox.Undelivered(ctx, maxFiles)
	for _, n := range pending {
		if n.Run == run && n.State == ledger.NoticePending {
			out = append(out, noticeOf{Channel: n.Channel, Title: n.Title, State: n.State, Error: n.Error})
		}
	}
	return out, err
}

// contentDisposition returns a header that makes a browser save a file under the given name, which
// may contain any characters.
func contentDisposition(name string) string {
	if d := mime.FormatMediaType("attachment", map[string]string{"filename": name}); d != "" {
		return d
	}
	return "attachment"
}

// maxShownDiff is the maximum number of diff lines on the page of a run.
const maxShownDiff = 3000
