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
	// journalRetention is how long the journal keeps a call. No run waits longer, and an
	// unlimited journal would use up the agent's quota.
	journalRetention = 90 * 24 * time.Hour
)

//go:embed migrations
var embedded embed.FS

// migrations is a variable so that tests can replace it.
var migrations fs.FS = embedded

// Options configures Open.
type Options struct {
	Path  string
	Quota int64 // size of the file and its WAL in bytes; 0 means no limit
	// Timeout limits the duration of a query. Zero means 10 s.
	Timeout time.Duration
	// Agent is the owner. It is recorded in the file if the file has no owner yet.
	Agent string
	// Backups is the number of automatic backups before schema changes to keep. Zero disables
	// them.
	Backups int
	// Logger receives problems that do not fail a call. Optional.
	Logger *slog.Logger
	// Ledger is the ledger of the runs that write to the database. If nil, runs are not checked.
	Ledger lineage.Ledger

	Scratch bool // the file will replace another: write nothing beside it
	Adopt   bool // open the database even if Ledger does not know its runs
}

// DB is the open database of one agent. Its methods are safe for concurrent use.
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
	found      dbfile.Marker // state when the file was opened
	agent      string
	background sync.WaitGroup     // work that continues after its call has returned
	stop       context.CancelFunc // cancels background work
	files      *schema.Files
	readers    *readers
	runs       *runs

	// ship waits until other nodes can fetch the committed changes. It is nil if there are no
	// other nodes.
	ship   func(context.Context) error
	readAt string // node that has the database, if it is read-only here
}

// Open opens or creates an agent's database. If the file is damaged, lost, or of another program,
// or was changed after it was closed, Open leaves it unchanged. It then returns a
// *sqlite.CorruptError.
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
	// Checking a very large file takes minutes, so it is checked while it is in use.
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

	// The file was just created or migrated: it changed without an update of the marker.
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

	// A process that was killed after a commit may not have written the migration files.
	if err := db.files.Write(ctx); err != nil {
		db.log.Warn("the files of an agent's migrations could not be written", "path", db.path, "error", err)
	}

	return nil
}

// Close waits for accepted writes, closes the file and stores its checksum.
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

// File returns the open file and its state when it was opened.
func (db *DB) File() (*sqlite.DB, dbfile.Marker) { return db.db, db.found }

// Replay returns the stored result of an earlier call and reports whether there is one.
func (db *DB) Replay(ctx context.Context, run int64, key string) (json.RawMessage, bool, error) {
	result, err := recallAcknowledged(ctx, db, changelog.By{Run: run, Key: key}, "")
	return result, result != nil, err
}

// recall reads the journal outside a write. An empty op matches any operation.
func recall(ctx context.Context, db *sqlite.DB, by changelog.By, op string) ([]byte, error) {
	if by.Key == "" {
		return nil, nil
	}
	return scanCall(db.Read().QueryRowContext(ctx, selectCall, by.Run, by.Key), by, op)
}

// write runs one write at most once. It returns the stored result if the call is in the journal;
// otherwise it runs do and stores its result. The transaction is shared with other writes unless
// do returns bulk.ErrConfine.
func write[T any](ctx context.Context, db *DB, by changelog.By, op string, do func(context.Context, *sqlite.Tx) (T, error)) (T, error) {
	done, err := journaled(ctx, db, by, op, false, do)
	if errors.Is(err, bulk.ErrConfine) {
		return confined(ctx, db, by, op, recorded(by, op, do))
	}
	return done, err
}

// confined runs one write at most once, in its own transaction, under the authorizer and a
// deadline.
func confined[T any](ctx context.Context, db *DB, by changelog.By, op string, do func(context.Context, *sqlite.Tx) (T, error)) (T, error) {
	return journaled(ctx, db, by, op, true, do)
}

// recorded wraps do and logs every row that changes, including changes by triggers.
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
	var stored []byte // result of an earlier call
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
		// A commit can be durable even if it returned an error.
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

// recallAfterError returns the stored result of a write after its commit returned an error. The
// transaction may still have been committed. A *dberr.Error was returned before the commit.
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

// recallAcknowledged reads the journal and waits until other nodes can read the result too. After
// that the caller may return it.
func recallAcknowledged(ctx context.Context, db *DB, by changelog.By, op string) ([]byte, error) {
	stored, err := recall(ctx, db.db, by, op)
	if stored == nil || err != nil {
		return nil, err
	}
	return stored, db.Shipped(ctx)
}

// decodeResult decodes a stored result. It returns err if err is not nil.
func decodeResult[T any](stored []byte, err error) (result T, _ error) {
	if err != nil {
		return result, err
	}

	decoder := json.NewDecoder(bytes.NewReader(stored))
	decoder.UseNumber() // ids are 64-bit integers
	if err := decoder.Decode(&result); err != nil {
		return result, fmt.Errorf("the stored result of a call cannot be read: %w", err)
	}
	return result, nil
}
