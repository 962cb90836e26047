package ledger

import (
	"errors"
	"fmt"
	"syscall"

	"rouse/agentdb/dbfile"
	"rouse/agentdb/sqlite"
	"rouse/internal/text"
)

// reserveSize is the room that is kept for a full disk: thousands of runs end in it.
const reserveSize = 16 << 20

// roomFor writes to the disk of the ledger. What does not fit is written once more in the room that was kept for that; it has left
// everything as it was, so that it can be.
func (l *Ledger) roomFor(write func() error) error {
	err := write()
	if !sqlite.Full(err) && !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, syscall.EDQUOT) || l.file == nil {
		return err
	}

	if !l.file.reserve.Gone() {
		l.logger.Error("the disk is full: what runs is recorded in the room that was kept for that, and nothing new starts", "ledger", l.path)
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
func (l *Ledger) KeepReserve() error {
	if l.file == nil {
		return nil
	}
	return l.file.reserve.Keep()
}

// NoRoom says why nothing new should start, "" while there is room on the disk.
func (l *Ledger) NoRoom() string {
	if l.file == nil || !l.file.reserve.Gone() {
		return ""
	}
	return fmt.Sprintf("the disk is full: nothing starts until %s are free beside %s", text.Size(l.file.reserve.Needs()), l.path)
}
