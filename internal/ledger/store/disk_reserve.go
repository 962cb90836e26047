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

// vacuumStep is how many bytes are given back in one transaction, so that other writers get their
// turn.
const vacuumStep = 1 << 20

// slack is the part of the file that may be free, as a divisor: what is written next fills it.
const slack = 10

// FileState is what is known of the file of a ledger.
type FileState struct {
	Path      string `json:"path"`
	Bytes     int64  `json:"bytes"` // with its log
	FreeBytes int64  `json:"free_bytes"`
	Checked   bool   `json:"checked"`   // the whole file was checked since it was opened
	ReadOnly  string `json:"read_only"` // why nothing is written to it; "": it is
}

// FileState measures the file of the ledger.
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

// GiveSpaceBack shortens the file in small steps until at most a tenth of it is free, and returns the number of
// bytes that it freed.
func (l *DB) GiveSpaceBack(ctx context.Context) (freed int64, err error) {
	if errors.Is(l.hasFile(), errNoFile) {
		return 0, nil
	}
	// What is given back goes through the log, which cannot be emptied before.
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

	// The file is cut off when the log is brought into it, and it may be long until that is full.
	return freed, l.file.db.Checkpoint(ctx)
}

// vacuum gives a few pages back, if enough are free.
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

	// A row comes for each page, and no page moves before its row is asked for.
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

// reserveSize is the room that is kept for a full disk: thousands of runs end in it.
const reserveSize = 16 << 20

// RoomFor writes to the disk of the ledger. What does not fit is written once more in the room that was kept for that; it has left
// everything as it was, so that it can be.
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

// FreeReserve frees the room that is kept beside the ledger of a path, for what has to be written before it can be opened.
func FreeReserve(path string) error { return dbfile.NewReserve(path, reserveSize).Release() }

// KeepReserve makes room for the time when the disk is full, or again after that. It is cheap where there is nothing to do. A ledger on
// PostgreSQL has none.
func (l *DB) KeepReserve() error {
	if l.file == nil {
		return nil
	}
	return l.file.reserve.Keep()
}

// DiskFull says why nothing new should start, "" while there is room on the disk.
func (l *DB) DiskFull() string {
	if l.file == nil || !l.file.reserve.Gone() {
		return ""
	}
	return fmt.Sprintf("the disk is full: nothing starts until %s are free beside %s", text.Size(l.file.reserve.Needs()), l.Path)
}
