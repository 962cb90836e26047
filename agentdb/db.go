package agentdb

import (
	"bytes"
	"cmp"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"sync"
	"time"

	"rouse/agentdb/bulk"
	"rouse/agentdb/changelog"
	"rouse/agentdb/dberr"
	"rouse/agentdb/lineage"
	"rouse/agentdb/schema"
	"rouse/agentdb/sqlvalue"
	"rouse/internal/storage/dbfile"
	"rouse/internal/storage/sqlite"
)

// ApplicationID marks a file as an agent's database: "rsag".
const ApplicationID = 0x72736167

const (
	defaultTimeout = 10 * time.Second
	// keepCalls is how long the journal remembers a call. No run waits that long, and a
	// journal kept for ever would eat the agent's quota.
	journalRetention = 90 * 24 * time.Hour
)

//go:embed migrations
var embedded embed.FS

// migrations is a variable for tests.
var migrations fs.FS = embedded

// Options say how to open an agent's database.
type Options struct {
	Path  string
	Quota int64 // bytes of the file with its log; 0 means no limit
	// Timeout ends a query that takes longer; 0 means 10 s.
	Timeout time.Duration
	// Agent is whose database it is, kept in the file when it has no owner yet.
	Agent string
	// Backups is how many of the copies are kept that are made automatically before the schema
	// changes; 0 means that none are made.
	Backups int
	Logger  *slog.Logger // for problems that do not fail a call; nil logs nothing
	// Ledger is the one whose runs write; nil stands for one of which nothing is known.
	Ledger lineage.Ledger

	Scratch bool // the file will replace another: nothing is written beside it
	Adopt   bool // open the database even if Ledger does not know its runs
}

// DB is one agent's open database. Its methods may be called at once.
type DB struct {
	Views   *Views
	Backups *Backups
	Quota   *Quota
	Health  *Health

	path       string
	timeout    time.Duration
	log        *slog.Logger
	db         *sqlite.DB
	marker     *dbfile.Keeper
	found      dbfile.Marker // as it was when the file was opened
	agent      string
	background sync.WaitGroup     // work that goes on after its call has returned
	stop       context.CancelFunc // ends the part of background that may be given up
	files      *schema.Files
	readers    *readers
	runs       *runs

	ship   func(context.Context) error // waits until other nodes can fetch what was committed; nil if there are none
	readAt string                      // the node that has the database, if it is only read here
}

// Open opens or creates an agent's database. It returns *sqlite.CorruptError if the file is
// damaged, lost, of another program, or not as it was closed, and leaves it as it is.
func Open(ctx context.Context, o Options) (*DB, error) {
	if o.Timeout <= 0 {
		o.Timeout = defaultTimeout
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}

	steps, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return nil, err
	}

	s, whole, err := dbfile.Inspect(o.Path, o.Logger)
	if err != nil {
		return nil, err
	}

	marker := dbfile.NewKeeper(o.Path, s)
	// Checking a very large file would keep its agent waiting for minutes, so it is checked while
	// it is in use.
	late := !whole && dbfile.Size(o.Path) > maxCheck
	file, err := sqlite.Open(ctx, sqlite.Options{
		Path: o.Path, ApplicationID: ApplicationID, Migrations: steps, SkipCheck: whole || late, BeforeWrite: marker.MarkOpen,
		BackupPath: func(version int) (string, error) {
			if o.Scratch {
				return "", nil
			}
			return dbfile.BackupPath(o.Path, fmt.Sprintf("before-schema-%d", version+1), time.Now())
		},
	})
	if err != nil {
		return nil, err
	}

	health := &Health{path: o.Path, timeout: o.Timeout, log: o.Logger, db: file, marker: marker}
	db := &DB{
		Backups: &Backups{path: o.Path, agent: o.Agent, keep: o.Backups, db: file, marker: marker, health: health},
		Quota:   &Quota{path: o.Path, limit: o.Quota, db: file, health: health},
		Health:  health,
		path:    o.Path, timeout: o.Timeout, log: o.Logger, db: file, marker: marker, found: s, agent: o.Agent,
		files:   schema.NewFiles(o.Path, file),
		readers: &readers{path: o.Path, db: file, pools: map[bool]*reader{}},
		runs:    &runs{path: o.Path, db: file, health: health},
	}
	db.Views = &Views{db}
	if err := db.runs.bind(ctx, o.Ledger, o.Adopt); err != nil {
		return nil, errors.Join(err, db.db.Close())
	}
	if err := db.start(ctx, s, late, o.Scratch); err != nil {
		return nil, errors.Join(err, db.db.Close())
	}

	return db, nil
}

// start prepares an opened database for its first call.
func (db *DB) start(ctx context.Context, s dbfile.Marker, late, scratch bool) error {
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	db.stop = stop
	if late {
		db.background.Go(func() { db.Health.checkInBackground(background) })
	} else {
		db.marker.SetChecked()
	}

	// It was made just now or was migrated: it changed without the
	// marker saying so.
	if s.State == "" || dbfile.HasLog(db.path) {
		if err := db.marker.MarkOpen(); err != nil {
			return err
		}
	}

	if err := pruneJournal(ctx, db.db); err != nil {
		return db.Health.explain(ctx, err)
	}
	if _, err := db.Quota.measure(ctx); err != nil {
		return err
	}
	if scratch {
		return nil
	}

	// A process that was killed after a commit has not written the files of it.
	if err := db.files.Write(ctx); err != nil {
		db.log.Warn("the files of an agent's migrations could not be written", "path", db.path, "error", err)
	}

	return nil
}

// Close finishes the writes that were accepted, closes the file and stores its checksum.
func (db *DB) Close() error {
	db.stop()
	db.background.Wait()
	db.readers.mu.Lock()
	defer db.readers.mu.Unlock()

	err := errors.Join(db.readers.close(), db.db.Close())
	if err == nil {
		err = db.marker.MarkClosed()
	}

	return err
}

// File is the open file, and what was known of it when it was opened.
func (db *DB) File() (*sqlite.DB, dbfile.Marker) { return db.db, db.found }

// Replay gives the stored result of a call that was already made, if it was.
func (db *DB) Replay(ctx context.Context, run int64, key string) (json.RawMessage, bool, error) {
	result, err := recallAcknowledged(ctx, db, changelog.By{Run: run, Key: key}, "")
	return result, result != nil, err
}

// recall reads the journal outside a write; op "" stands for any.
func recall(ctx context.Context, db *sqlite.DB, by changelog.By, op string) ([]byte, error) {
	if by.Key == "" {
		return nil, nil
	}
	return scanCall(db.Read().QueryRowContext(ctx, selectCall, by.Run, by.Key), by, op)
}

// write does one write once: a call in the journal returns its stored result, and a new one stores
// its result. The transaction is shared with others, unless the work turns out to need a confined
// one.
func write[T any](ctx context.Context, db *DB, by changelog.By, op string, do func(context.Context, *sqlite.Tx) (T, error)) (T, error) {
	done, err := journaled(ctx, db, by, op, false, do)
	if errors.Is(err, bulk.ErrConfine) {
		return confined(ctx, db, by, op, recorded(by, op, do))
	}
	return done, err
}

// confined does one write once, by itself, under the authorizer and a deadline.
func confined[T any](ctx context.Context, db *DB, by changelog.By, op string, do func(context.Context, *sqlite.Tx) (T, error)) (T, error) {
	return journaled(ctx, db, by, op, true, do)
}

// recorded logs every row that do changes, whoever changes it.
func recorded[T any](by changelog.By, op string, do func(context.Context, *sqlite.Tx) (T, error)) func(context.Context, *sqlite.Tx) (T, error) {
	return func(ctx context.Context, tx *sqlite.Tx) (result T, err error) {
		changes, err := tx.RecordChanges(ctx, func(ctx context.Context) error {
			result, err = do(ctx, tx)
			return err
		})
		if err != nil {
			return result, err
		}

		logged := op
		if op == opUpsert {
			logged = "" // some rows are inserted, some updated
		}
		return result, changelog.LogRows(ctx, tx, by, sqlvalue.Now(), logged, changes)
	}
}

func journaled[T any](ctx context.Context, db *DB, by changelog.By, op string, alone bool, do func(context.Context, *sqlite.Tx) (T, error)) (result T, err error) {
	var none T
	var stored []byte // the result of a call that was made before
	once := func(ctx context.Context, tx *sqlite.Tx) (err error) {
		if stored = nil; by.Key != "" {
			if stored, err = scanCall(tx.QueryRow(selectCall, by.Run, by.Key), by, op); stored != nil || err != nil {
				return err
			}
		}
		if err := db.Quota.check(); err != nil {
			return err
		}

		if result, err = do(ctx, tx); err != nil {
			return err
		}
		encoded, err := json.Marshal(result)
		if err != nil {
			return err
		}
		return errors.Join(recordCall(tx, by, op, encoded), db.runs.note(tx, by.Run))
	}
	if err := cmp.Or(db.marker.Quarantined(), db.CheckWritable()); err != nil {
		return none, err
	}

	if alone {
		err = db.runConfined(ctx, once)
	} else {
		err = db.db.Do(ctx, func(tx *sqlite.Tx) error { return once(ctx, tx) })
	}
	switch {
	case errors.Is(err, bulk.ErrConfine):
		return none, err
	case err == nil:
		db.runs.noted(by.Run)
	default:
		// A commit can be durable although it returned an error.
		if stored = recallAfterError(ctx, db.db, by, op, err); stored == nil {
			return none, db.Health.explain(ctx, err)
		}
	}

	if err := db.Shipped(ctx); err != nil {
		return none, err
	}
	if stored != nil {
		return decodeResult[T](stored, nil)
	}
	return result, nil
}

// recallAfterError returns the result of a write that is in the file although its commit returned
// an error: such an error says nothing about the outcome. An *Error was raised before the commit.
func recallAfterError(ctx context.Context, db *sqlite.DB, by changelog.By, op string, err error) []byte {
	var bad *dberr.Error
	if errors.As(err, &bad) {
		return nil
	}

	stored, err := recall(context.WithoutCancel(ctx), db, by, op)
	if err != nil {
		return nil
	}
	return stored
}

// recallAcknowledged reads the journal for a call whose result may be told at once: it is where
// other nodes find it, too.
func recallAcknowledged(ctx context.Context, db *DB, by changelog.By, op string) ([]byte, error) {
	stored, err := recall(ctx, db.db, by, op)
	if stored == nil || err != nil {
		return nil, err
	}
	return stored, db.Shipped(ctx)
}

// decodeResult reads a stored result, unless reading the journal failed.
func decodeResult[T any](stored []byte, err error) (result T, _ error) {
	if err != nil {
		return result, err
	}

	decoder := json.NewDecoder(bytes.NewReader(stored))
	decoder.UseNumber() // ids are 64 bits
	if err := decoder.Decode(&result); err != nil {
		return result, fmt.Errorf("the stored result of a call cannot be read: %w", err)
	}
	return result, nil
}
