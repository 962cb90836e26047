package ledger

import (
	"context"
	"encoding/base64"
	"fmt"
	"math"
	"rouse/internal/ledger/record"
	"rouse/internal/ledger/store"
	"time"
)

// FileOpType says what was done to a file.
type FileOpType string

// The types.
const (
	FileCreate FileOpType = "create"
	FileWrite  FileOpType = "write"
	FileEdit   FileOpType = "fileEdit"

	// By commands (OSA-36).
	FileMove      FileOpType = "move" // two changes: there is a new name, and the old one is gone
	FileCopy      FileOpType = "copy"
	FileDelete    FileOpType = "delete"
	FileDirCreate FileOpType = "dirCreate" // its AfterHash is no hash
	// FileMoveAway records the old name of a moved file. Its content is not stored, because the file has it under the new name.
	// The FileMove recorded right before names it.
	FileMoveAway  FileOpType = "moveAway"
	FileDirDelete FileOpType = "dirDelete" // BeforeHash is not a hash
	// FileProgram is by a program that may change anything, found afterwards: made, changed or removed, as its hashes say.
	FileProgram FileOpType = "program"
)

// FileOp is a change of a file by a run (OSA-35). It is recorded before the file changes: a
// file that still has BeforeHash was not changed by it.
type FileOp struct {
	ID            int64
	Run           int64
	Agent         string
	Batch         string // the key of the call
	At            time.Time
	Type          FileOpType
	Root          string // absolute: the granted folder in which the file is
	Path          string // absolute
	CreatedFolder string // absolute: the first of the folders that were made for the file, "" for none
	Mode          uint32 // the permissions before
	Size          int64  // bytes before
	BeforeHash    string // SHA-256, hexadecimal; "" when there was no file
	AfterHash     string
	NoUndoReason  string    // why it cannot be undone; "" when it can
	UndoneAt      time.Time // zero: it was not
}

// AddFileOp records what attempt a is about to do to a file, and the content before, unless
// op.NoUndoReason says why that is not kept. It returns the op with its id.
func (l *Ledger) AddFileOp(ctx context.Context, a Attempt, op FileOp, before []byte) (FileOp, error) {
	ops := []FileOp{op}
	err := l.AddFileOps(ctx, a, ops, [][]byte{before})
	return ops[0], err
}

// AddFileOps records changes like AddFileOp, in one transaction, and sets their ids and times.
func (l *Ledger) AddFileOps(ctx context.Context, a Attempt, ops []FileOp, before [][]byte) error {
	now := l.Now()
	entries := make([]Entry, len(ops))
	for i := range ops {
		op := &ops[i]
		op.Run, op.At = a.Run, now
		var kept []byte
		if op.BeforeHash != "" && op.NoUndoReason == "" {
			// The columns have type text, but a file may hold any bytes.
			kept = base64.StdEncoding.AppendEncode(nil, before[i])
		}

		entries[i] = record.NewEntry(kept, func(tx *store.Tx, _ Attempt, _, stored string) error {
			return tx.QueryRow(`insert into file_ops (run, agent, batch, at, type, root, path, made, mode, size, before, before_hash, after_hash, lost)
				values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14) returning id`,
				op.Run, op.Agent, op.Batch, store.Millis(op.At), op.Type, op.Root, op.Path, op.CreatedFolder, op.Mode, op.Size, stored, op.BeforeHash, op.AfterHash, op.NoUndoReason).Scan(&op.ID)
		})
	}

	err := record.WriteEntries(ctx, l.Blobs, a, entries)
	for i := range ops {
		ops[i].At = store.Instant(store.Millis(now))
	}
	return err
}

// DeleteFileOp deletes the record of a change that was not made after all.
func (l *Ledger) DeleteFileOp(ctx context.Context, id int64) error {
	return store.Exec(ctx, l.DB, `delete from file_ops where id = $1`, id)
}

// MarkFileOpUndone records that a change was undone.
func (l *Ledger) MarkFileOpUndone(ctx context.Context, id int64) error {
	return store.Write(ctx, l.DB, func(tx *store.Tx) error {
		done, err := tx.Exec(`update file_ops set undone_at = $1 where id = $2 and undone_at = 0`, store.Millis(l.Now()), id)
		return record.RequireRow(done, err, "the change %d of a file was undone already, or is not known", id)
	})
}

// FileOpFilter chooses changes; the zero value of a field chooses all.
type FileOpFilter struct {
	ID    int64
	Run   int64
	Agent string
	Batch string
	Path  string // absolute
	Limit int    // 0 means 100; below 0 all
}

// FileOps lists changes of files, the newest first.
func (l *Ledger) FileOps(ctx context.Context, f FileOpFilter) ([]FileOp, error) {
	limit := f.Limit
	switch {
	case limit == 0:
		limit = 100
	case limit < 0:
		limit = math.MaxInt32
	}

	query, args := `select id, run, agent, batch, at, type, root, path, made, mode, size, before_hash, after_hash, lost, undone_at from file_ops where 1 = 1`, []any{limit}
	for _, c := range []struct {
		column string
		value  any
		given  bool
	}{{"id", f.ID, f.ID != 0}, {"run", f.Run, f.Run != 0}, {"agent", f.Agent, f.Agent != ""}, {"batch", f.Batch, f.Batch != ""}, {"path", l.StoredPath(f.Path), f.Path != ""}} {
		if c.given {
			args = append(args, c.value)
			query += fmt.Sprintf(` and %s = $%d`, c.column, len(args))
		}
	}

	return store.List(store.Reads(ctx, l.DB), func(op *FileOp) []any {
		return []any{
			&op.ID, &op.Run, &op.Agent, &op.Batch, store.Time(&op.At), &op.Type, &op.Root, &op.Path, &op.CreatedFolder, &op.Mode, &op.Size,
			&op.BeforeHash, &op.AfterHash, &op.NoUndoReason, store.Time(&op.UndoneAt),
		}
	}, query+` order by id desc limit $1`, args...)
}

// FileBefore returns the content of a file before a change.
func (l *Ledger) FileBefore(ctx context.Context, id int64) ([]byte, error) {
	stored, err := store.Value[string](store.Reads(ctx, l.DB), `select before from file_ops where id = $1`, id)
	if stored, err = store.OrNotFound(stored, err, "file change %d", id); err != nil {
		return nil, err
	}
	content, err := l.Blobs.UnpackBytes(ctx, stored)
	if err != nil {
		err = fmt.Errorf("read the file content before change %d: %w", id, err)
	}
	return content, err
}

// SavedFileBytes is the size of the contents that are kept from before a run changed files, in bytes.
func (l *Ledger) SavedFileBytes(ctx context.Context, run int64) (int64, error) {
	return store.Value[int64](store.Reads(ctx, l.DB), `select coalesce(sum(size), 0) from file_ops where run = $1 and lost = ''`, run)
}
