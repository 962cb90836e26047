// Package fileop stores how runs changed files, together with the previous contents, so that the
// changes can be undone.
package fileop

import (
	"context"
	"encoding/base64"
	"fmt"
	"math"
	"time"

	"rouse/internal/ledger/blob"
	"rouse/internal/ledger/record"
	"rouse/internal/ledger/store"
)

// Type is the type of a file change.
type Type string

// Types of file changes.
const (
	Create Type = "create"
	Write  Type = "write"
	Edit   Type = "fileEdit"

	// Move records the new name of a moved file. MoveAway records the old name.
	Move      Type = "move"
	Copy      Type = "copy"
	Delete    Type = "delete"
	DirCreate Type = "dirCreate" // AfterHash is not a hash
	// MoveAway records the old name of a moved file. Its content is not stored, because the file
	// still has it under the new name. The Move recorded right before it holds the new name.
	MoveAway  Type = "moveAway"
	DirDelete Type = "dirDelete" // BeforeHash is not a hash
	// Program records a change made by a program that may change any file. The change is detected
	// after the program ends. The hashes tell whether the file was created, changed or deleted.
	Program Type = "program"
)

// Op is a file change by a run. It is recorded before the file changes. If the file still has
// BeforeHash, the change did not happen.
type Op struct {
	ID    int64
	Run   int64
	Agent string
	Batch string // key of the call
	At    time.Time
	Type  Type
	Root  string // absolute path of the granted folder that contains the file
	Path  string // absolute path
	// CreatedFolder is the absolute path of the topmost folder created for the file. It is empty if
	// no folder was created.
	CreatedFolder string
	Mode          uint32 // permissions before the change
	Size          int64  // size in bytes before the change
	BeforeHash    string // SHA-256 in hexadecimal; empty if the file did not exist
	AfterHash     string
	NoUndoReason  string    // reason the change cannot be undone; empty if it can
	UndoneAt      time.Time // zero if the change was not undone
}

// FileOps stores the file changes of runs and the previous contents.
type FileOps struct {
	DB    *store.DB
	Blobs *blob.Blobs
}

// Add records a file change that attempt a is about to make, and returns op with its ID. It also
// stores the previous content unless op.NoUndoReason is set.
func (l *FileOps) Add(ctx context.Context, a record.Attempt, op Op, before []byte) (Op, error) {
	ops := []Op{op}
	err := l.AddAll(ctx, a, ops, [][]byte{before})
	return ops[0], err
}

// AddAll records changes like Add, in one transaction, and sets their IDs and times.
func (l *FileOps) AddAll(ctx context.Context, a record.Attempt, ops []Op, before [][]byte) error {
	now := l.DB.Now()
	entries := make([]record.Entry, len(ops))
	for i := range ops {
		op := &ops[i]
		op.Run, op.At = a.Run, now
		var kept []byte
		if op.BeforeHash != "" && op.NoUndoReason == "" {
			// The columns have type text, but a file may contain any bytes.
			kept = base64.StdEncoding.AppendEncode(nil, before[i])
		}

		entries[i] = record.NewEntry(kept, func(tx *store.Tx, _ record.Attempt, _, stored string) error {
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

// Delete deletes the record of a change that was not made.
func (l *FileOps) Delete(ctx context.Context, id int64) error {
	return store.Exec(ctx, l.DB, `delete from file_ops where id = $1`, id)
}

// MarkUndone records that a change was undone. It returns an error if the change was already undone
// or does not exist.
func (l *FileOps) MarkUndone(ctx context.Context, id int64) error {
	return store.Write(ctx, l.DB, func(tx *store.Tx) error {
		done, err := tx.Exec(`update file_ops set undone_at = $1 where id = $2 and undone_at = 0`, store.Millis(l.DB.Now()), id)
		return record.RequireRow(done, err, "the change %d of a file was undone already, or is not known", id)
	})
}

// Filter selects file changes. The zero value of a field matches all changes.
type Filter struct {
	ID    int64
	Run   int64
	Agent string
	Batch string
	Path  string // absolute path
	Limit int    // 0 means 100; a negative limit means no limit
}

// List returns file changes, newest first.
func (l *FileOps) List(ctx context.Context, f Filter) ([]Op, error) {
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
	}{{"id", f.ID, f.ID != 0}, {"run", f.Run, f.Run != 0}, {"agent", f.Agent, f.Agent != ""}, {"batch", f.Batch, f.Batch != ""}, {"path", l.DB.StoredPath(f.Path), f.Path != ""}} {
		if c.given {
			args = append(args, c.value)
			query += fmt.Sprintf(` and %s = $%d`, c.column, len(args))
		}
	}

	return store.List(store.Reads(ctx, l.DB), func(op *Op) []any {
		return []any{
			&op.ID, &op.Run, &op.Agent, &op.Batch, store.Time(&op.At), &op.Type, &op.Root, &op.Path, &op.CreatedFolder, &op.Mode, &op.Size,
			&op.BeforeHash, &op.AfterHash, &op.NoUndoReason, store.Time(&op.UndoneAt),
		}
	}, query+` order by id desc limit $1`, args...)
}

// Before returns the content of a file before a change.
func (l *FileOps) Before(ctx context.Context, id int64) ([]byte, error) {
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

// SavedBytes returns the total size in bytes of the previous contents stored for a run.
func (l *FileOps) SavedBytes(ctx context.Context, run int64) (int64, error) {
	return store.Value[int64](store.Reads(ctx, l.DB), `select coalesce(sum(size), 0) from file_ops where run = $1 and lost = ''`, run)
}
