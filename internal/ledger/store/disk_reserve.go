package store

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"rouse/internal/storage/dbfile"
	"rouse/internal/storage/sqlite"
	"rouse/internal/text"
)

// vacuumStep is the number of bytes freed in one transaction. Small steps let other writers
// proceed.
const vacuumStep = 1 << 20

// slack is the divisor for the part of the file that may stay free. New rows reuse that part.
const slack = 10

// FileState describes the SQLite file of a ledger.
type FileState struct {
	Path      string `json:"path"`
	Bytes     int64  `json:"bytes"` // size, including the log
	FreeBytes int64  `json:"free_bytes"`
	Checked   bool   `json:"checked"`   // whether the whole file was checked since it was opened
	ReadOnly  string `json:"read_only"` // reason that the ledger is read-only; empty if it is writable
}

// FileState returns the state of the ledger's file. It returns an error if the ledger has no file.
func (l *DB) FileState(ctx context.Context) (FileState, error) {
	if l.Path == "" {
		return FileState{}, errNoFile
	}

	s := FileState{Path: l.Path, Bytes: dbfile.Size(l.Path) + dbfile.Size(l.Path+"-wal"), Checked: l.file != nil && l.file.marker.Checked()}
	if err := l.ReadOnly(); err != nil {
		s.ReadOnly = err.Error()
	}

	var err error
	s.FreeBytes, err = Value[int64](Reads(ctx, l), "select freelist_count * page_size from pragma_freelist_count, pragma_page_size")
	return s, err
}

// GiveSpaceBack shortens the file in small steps until at most a tenth of it is free. It returns
// the number of freed bytes.
func (l *DB) GiveSpaceBack(ctx context.Context) (freed int64, err error) {
	if errors.Is(l.hasFile(), errNoFile) {
		return 0, nil
	}
	// Freed pages go through the log, which cannot be emptied before the check is done.
	if err := l.WaitChecked(ctx); err != nil {
		return 0, err
	}

	for ctx.Err() == nil {
		n := int64(0)
		if err := WriteQuietly(ctx, l, func(tx *Tx) (err error) {
			n, err = vacuum(tx)
			return err
		}); err != nil {
			return freed, err
		}
		if n == 0 {
			break
		}
		freed += n
	}
	if freed == 0 || ctx.Err() != nil {
		return freed, context.Cause(ctx)
	}

	// The file is truncated when the log is copied into it, which may take long to happen by
	// itself.
	return freed, l.file.db.Checkpoint(ctx)
}

// vacuum frees a few pages if more than a slack part of the file is free.
func vacuum(tx *Tx) (freed int64, err error) {
	var free, all, size int64
	for pragma, value := range map[string]*int64{"freelist_count": &free, "page_count": &all, "page_size": &size} {
		if err := tx.QueryRow("pragma " + pragma).Scan(value); err != nil {
			return 0, err
		}
	}
	if free <= all/slack {
		return 0, nil
	}

	// The pragma returns a row per page, and frees a page only when its row is read.
	pages := vacuumStep / size
	rows, err := tx.Query(fmt.Sprintf("pragma incremental_vacuum(%d)", pages))
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	for rows.Next() {
	}

	return min(free, pages) * size, rows.Err()
}

// reserveSize is the size of the file reserved for a full disk. Thousands of runs can finish in it.
const reserveSize = 16 << 20

// RoomFor calls write, which writes to the disk of the ledger. If the disk is full, it deletes the
// reserve file and calls write again. A write that fails must leave everything unchanged.
func RoomFor(l *DB, write func() error) error {
	err := write()
	if !sqlite.Full(err) && !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, syscall.EDQUOT) || l.file == nil {
		return err
	}

	if !l.file.reserve.Gone() {
		l.Logger.Error("the disk is full: what runs is recorded in the room that was kept for that, and nothing new starts", "ledger", l.Path)
	}
	if e := l.file.reserve.Release(); e != nil {
		return errors.Join(err, e)
	}
	return write()
}

// FreeReserve deletes the reserve file of the ledger at a path. This makes room for writes that
// must happen before the ledger is opened.
func FreeReserve(path string) error { return dbfile.NewReserve(path, reserveSize).Release() }

// KeepReserve creates the reserve file again if it is gone. It is cheap if the file exists. It does
// nothing for a ledger without a file.
func (l *DB) KeepReserve() error {
	if l.file == nil {
		return nil
	}
	return l.file.reserve.Keep()
}

// DiskFull returns why no new run should start, or "" if the disk has room.
func (l *DB) DiskFull() string {
	if l.file == nil || !l.file.reserve.Gone() {
		return ""
	}
	return fmt.Sprintf("the disk is full: nothing starts until %s are free beside %s", text.Size(l.file.reserve.Needs()), l.Path)
}
