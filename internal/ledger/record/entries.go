package record

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"rouse/internal/ledger/blob"
	"rouse/internal/ledger/store"
)

// Entry is the start or the end of a step or a call, to be recorded for an attempt.
type Entry struct {
	value  []byte // may be large
	err    error
	write  func(tx *store.Tx, a Attempt, job, stored string) error
	events []Event // added after the write, with the attempt's run and job
}

// NewEntry returns an entry. write stores it in a transaction. Its argument stored is the value, or
// a reference to it if the value is large.
func NewEntry(value []byte, write func(tx *store.Tx, a Attempt, job, stored string) error) Entry {
	return Entry{value: value, write: write}
}

// Failed returns e with err added. An entry with an error cannot be written. A nil err is
// ignored.
func (e Entry) Failed(err error) Entry {
	e.err = errors.Join(e.err, err)
	return e
}

// Telling returns e with an event added.
func (e Entry) Telling(at time.Time, kind string, data map[string]any) Entry {
	raw, err := json.Marshal(data)
	if err != nil {
		e.err = errors.Join(e.err, fmt.Errorf("the event %s cannot be recorded: %w", kind, err))
	}
	e.events = append(e.events, Event{At: at, Kind: kind, Data: raw})
	return e
}

// WriteEntries writes entries with possibly large values in one transaction, fenced by a.
func WriteEntries(ctx context.Context, l *blob.Blobs, a Attempt, entries []Entry) error {
	defer l.Hold()()
	packed, err := PackEntries(ctx, l, entries)
	if err != nil {
		return err
	}

	return store.Write(ctx, l.DB, func(tx *store.Tx) error {
		r, err := CheckFence(tx, l.DB, a)
		if err != nil {
			return err
		}
		return packed.Write(tx, a, r.Job)
	})
}

// PackedEntries are entries with large values that are already stored outside the database. The
// caller must hold the Blobs until they are written.
type PackedEntries []packedEntry

type packedEntry struct {
	Entry
	stored, hash string
}

func PackEntries(ctx context.Context, l *blob.Blobs, entries []Entry) (PackedEntries, error) {
	out := make(PackedEntries, len(entries))
	for i, e := range entries {
		out[i].Entry = e
		err := e.err
		if err == nil {
			out[i].stored, out[i].hash, err = l.Pack(ctx, string(e.value))
		}
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Write writes the entries in order, and then their events. The caller must have checked the fence
// of a.
func (p PackedEntries) Write(tx *store.Tx, a Attempt, job string) error {
	var events []Event
	for _, e := range p {
		blob.Keep(tx, e.hash, a.Run)
		if err := e.write(tx, a, job, e.stored); err != nil {
			return err
		}
		events = append(events, e.events...)
	}
	return addEventsOf(tx, a.Run, job, events)
}

// RequireRow returns an error if an update matched no row, because the update would be lost.
func RequireRow(updated sql.Result, err error, format string, args ...any) error {
	if err != nil {
		return err
	}

	n, err := updated.RowsAffected()
	if err == nil && n == 0 {
		err = fmt.Errorf(format, args...)
	}
	return err
}
