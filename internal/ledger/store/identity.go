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

// ID returns the id of the ledger: 32 hexadecimal digits, generated when the ledger was created. It
// changes only with BeginEpoch.
func (l *DB) ID() string {
	epochs := l.Epochs()
	return epochs[len(epochs)-1].ID
}

// Epochs returns all epochs of the ledger in order. The last is the current one. The caller must
// not change the slice.
func (l *DB) Epochs() []domain.Epoch { return *l.epochs.Load() }

// Epoch returns the epoch with an id.
func (l *DB) Epoch(id string) (domain.Epoch, bool) {
	for _, e := range l.Epochs() {
		if e.ID == id {
			return e, true
		}
	}
	return domain.Epoch{}, false
}

// EpochOf returns the epoch that a run belongs to.
func (l *DB) EpochOf(run int64) domain.Epoch {
	epochs := l.Epochs()
	for _, e := range epochs {
		if e.Holds(run) {
			return e
		}
	}
	return epochs[len(epochs)-1]
}

// ReadEpochs loads the epochs of a ledger that is being opened.
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

// NewestRun returns the highest run id that the ledger has assigned, even if that run was removed.
// It returns 0 if there was no run.
func (l *DB) NewestRun(ctx context.Context) (int64, error) {
	return Value[int64](Reads(ctx, l), l.RunIDs.Newest)
}

// runCounter holds the statements for the run id counter of a database.
type runCounter struct {
	Newest string   // query of the last assigned id
	Skip   []string // statements that advance the counter to $1
}

var (
	countSQLite = runCounter{`select coalesce(max(seq), 0) from sqlite_sequence where name = 'runs'`,
		// sqlite_sequence has no unique key for an upsert.
		[]string{`delete from sqlite_sequence where name = 'runs' and seq <= $1`, `insert into sqlite_sequence (name, seq) values ('runs', $1)`}}
	countPostgres = runCounter{`select case when is_called then last_value else 0 end from runs_id_seq`,
		[]string{`select setval('runs_id_seq', $1)`}}
)

// BeginEpoch gives the ledger a new id, starting with the next run. The id of that run is above
// newest, the highest id known from elsewhere. Without it, a ledger that was restored to an older
// state would assign ids again. Existing runs stay in their epoch.
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

// CheckFile checks that the ledger's file is still the one that is open. If it is not, the error
// wraps a *sqlite.LostError, and no further write succeeds. No run or call then begins, because it
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

// Touch rewrites an existing value and returns once it is on disk. This proves that the ledger
// accepts writes. It changes no data and wakes no waiter.
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
