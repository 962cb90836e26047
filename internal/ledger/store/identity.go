package store

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"

	"rouse/internal/domain"
	"rouse/internal/storage/sqlite"
)

// ID is which ledger this is: 32 hexadecimal digits, made with it and unlike those of any other. It
// changes only with BeginEpoch.
func (l *DB) ID() string {
	epochs := l.Epochs()
	return epochs[len(epochs)-1].ID
}

// Epochs are those that the ledger has had, in order; the last goes on. It must not be changed.
func (l *DB) Epochs() []domain.Epoch { return *l.epochs.Load() }

// Epoch is the one of that id.
func (l *DB) Epoch(id string) (domain.Epoch, bool) {
	for _, e := range l.Epochs() {
		if e.ID == id {
			return e, true
		}
	}
	return domain.Epoch{}, false
}

// EpochOf is the one that a run belongs to.
func (l *DB) EpochOf(run int64) domain.Epoch {
	epochs := l.Epochs()
	for _, e := range epochs {
		if e.Holds(run) {
			return e
		}
	}
	return epochs[len(epochs)-1]
}

// ReadEpochs is part of opening a ledger.
func ReadEpochs(ctx context.Context, l *DB) error {
	found, err := List(Reads(ctx, l), func(e *domain.Epoch) []any {
		return []any{&e.ID, &e.First, &e.Last}
	}, `select id, first_run, last_run from epochs order by n`)
	if err == nil && len(found) == 0 {
		err = errors.New("it has no identity (the table epochs is empty); restore it from a backup")
	}
	if err != nil {
		return fmt.Errorf("cannot read which ledger this is: %w", err)
	}

	l.epochs.Store(&found)
	return nil
}

// NewestRun is the highest run id that the ledger has given, also to a run that is no longer kept;
// 0 before the first.
func (l *DB) NewestRun(ctx context.Context) (int64, error) {
	return Value[int64](Reads(ctx, l), l.RunIDs.Newest)
}

// runCounter is how a database counts run ids: each in its own way.
type runCounter struct {
	Newest string   // asks for the last that was given
	Skip   []string // move the counter to $1
}

var (
	countSQLite = runCounter{`select coalesce(max(seq), 0) from sqlite_sequence where name = 'runs'`,
		// The table of the counters has no key that an upsert could use.
		[]string{`delete from sqlite_sequence where name = 'runs' and seq <= $1`, `insert into sqlite_sequence (name, seq) values ('runs', $1)`}}
	countPostgres = runCounter{`select case when is_called then last_value else 0 end from runs_id_seq`,
		[]string{`select setval('runs_id_seq', $1)`}}
)

// BeginEpoch gives the ledger a new id from the next run on. That run's id is above newest, the
// highest that is known from elsewhere: the ledger was put back to an older state, and would give
// ids again that it has given before. Runs that it knows stay in their epoch.
func (l *DB) BeginEpoch(ctx context.Context, newest int64) error {
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails

	last, err := l.NewestRun(ctx)
	if err != nil {
		return err
	}
	newest = max(newest, last)

	err = Write(ctx, l, func(tx *Tx) error {
		tx.Run(`update epochs set last_run = $1 where last_run = 0`, last)
		tx.Run(`insert into epochs (n, id, first_run, began_at) select max(n) + 1, cast($1 as text), cast($2 as bigint), cast($3 as bigint) from epochs`, hex.EncodeToString(id[:]), newest+1, Millis(l.Now()))
		for _, statement := range l.RunIDs.Skip {
			tx.Run(statement, newest)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("cannot begin a new epoch of the ledger: %w", err)
	}

	return ReadEpochs(ctx, l)
}

// CheckFile looks whether the ledger's file is still the one that is open. Once it is not, the error
// wraps a *sqlite.LostError, and nothing is written any more: neither a run nor a call begins that
// could not be recorded.
func (l *DB) CheckFile(ctx context.Context) error {
	if l.file == nil {
		return nil
	}
	err := l.file.db.CheckFile(ctx)
	var lost *sqlite.LostError
	if !errors.As(err, &lost) {
		return err
	}

	l.file.setLost(lost)
	return l.lost()
}

func (l *DB) lost() error {
	if l.file == nil {
		return nil
	}
	if err := l.file.db.Lost(); err != nil {
		return fmt.Errorf("the ledger is lost, and nothing is done that could not be recorded: %w", err)
	}
	return nil
}

// Touch writes what is there already, and returns once it is on the disk: what proves that the ledger takes what happens
// next. Nobody is told of a change, and nothing is kept of it.
func (l *DB) Touch(ctx context.Context) error {
	err := WriteQuietly(ctx, l, func(tx *Tx) error {
		_, err := tx.Exec(`update epochs set last_run = last_run where last_run = 0`)
		return err
	})
	if err != nil {
		return fmt.Errorf("the ledger takes nothing that is written: %w", err)
	}
	return nil
}
