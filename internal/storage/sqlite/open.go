package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	msqlite "modernc.org/sqlite"
)

const (
	defaultReaders = 4
	busyTimeout    = 5000 // milliseconds to wait for a lock of another process
)

// Options configures Open.
type Options struct {
	Path string
	// ApplicationID identifies the program that owns the file. It is written into a new file and
	// must match in an existing one.
	ApplicationID int32
	// Migrations contains files NNNN_name.sql in its root. They are applied in order and only
	// forward.
	Migrations fs.FS
	Readers    int // read connections; zero means 4
	// AutoVacuum enables incremental_vacuum in a new file, so that unused space can be released in
	// steps.
	AutoVacuum bool
	// PageSize is the page size of a new file, in bytes. Zero means SQLite's default.
	PageSize int
	// LogSize is the size of the log that triggers a checkpoint, in bytes. Zero means about 4 MiB.
	LogSize int64
	// SkipCheck skips the check that reads the whole file. Set it if the file is known to be
	// intact, or if the caller calls Check later.
	SkipCheck bool
	// BeforeWrite is called before every write and before a migration of an existing file. An error
	// prevents the write. Optional.
	BeforeWrite func() error
	// BackupPath returns the path for the backup made before migrating a schema of this version. If
	// it returns "", there is no backup. If BackupPath is nil, the backup replaces
	// PATH.bak-VERSION.
	BackupPath func(version int) (path string, err error)
}

// DB is one open database file.
type DB struct {
	path    string
	writeDB *sql.DB
	read    *sql.DB
	writer  *Writer

	beforeWrite func() error
	file        fileWatch
	pageSize    int64 // bytes

	confined *confined // nil until first used; only the writer's goroutine uses it
	closing  atomic.Pointer[func()]
}

// Open opens or creates a database, checks it and migrates it to the newest schema. It returns a
// *CorruptError if the file is damaged or belongs to another program.
func Open(ctx context.Context, o Options) (*DB, error) {
	if o.Readers <= 0 {
		o.Readers = defaultReaders
	}
	if err := os.MkdirAll(filepath.Dir(o.Path), 0o700); err != nil {
		return nil, fmt.Errorf("cannot create the folder of the database %s: %w", o.Path, err)
	}
	if err := limitHeap(); err != nil {
		return nil, err
	}

	// Probe before SQLite opens the file, because SQLite would create a database in an empty file.
	fresh, err := probe(o.Path)
	if err != nil {
		return nil, err
	}

	if fresh {
		if err := create(o.Path); err != nil {
			return nil, err
		}
	}

	host := &msqlite.Driver{}
	if o.BeforeWrite == nil {
		o.BeforeWrite = func() error { return nil }
	}

	db := &DB{
		path: o.Path, beforeWrite: o.BeforeWrite,
		// SQLite supports one writer at a time. A second connection would only wait for the first.
		writeDB: openPool(connector{driver: host, dsn: dsn(o.Path, existing, "_txlock=immediate")}, 1),
		read:    openPool(connector{driver: host, dsn: dsn(o.Path, existing, "_pragma=query_only(1)")}, o.Readers),
	}
	if err = db.initialize(ctx, o, fresh); err == nil {
		err = db.file.start(o.Path)
	}
	if err == nil {
		db.writer, err = NewWriter(ctx, db.writeDB, WriterOptions{})
	}
	if err != nil {
		return nil, errors.Join(err, db.writeDB.Close(), db.read.Close())
	}

	return db, nil
}

// Do runs op in a transaction that it may share with other callers. It returns once the transaction
// is durable. See Writer.Do.
func (db *DB) Do(ctx context.Context, op func(*Tx) error) error {
	if err := db.beforeWrite(); err != nil {
		return err
	}
	return db.writer.Do(ctx, op)
}

// Writer returns the group-commit writer used by Do.
func (db *DB) Writer() *Writer { return db.writer }

// Read returns the pool of read-only connections.
func (db *DB) Read() *sql.DB { return db.read }

// Observe sets the only observer of the database. The writer's goroutine calls committed after each
// batch, before the callers of Do return; committed must not block. closing is called after the
// last write and before the file is closed. It must close all open Snapshots.
func (db *DB) Observe(committed, closing func()) {
	db.writer.committed.Store(&committed)
	db.closing.Store(&closing)
}

// Turn runs fn while no write is in progress, so that the log contains only complete transactions.
func (db *DB) Turn(ctx context.Context, fn func() error) error {
	return db.writer.submit(ctx, &operation{exclusive: fn, reads: true, done: make(chan struct{})})
}

// Checkpoint copies the log into the file, except for the parts that an open read transaction
// needs.
func (db *DB) Checkpoint(ctx context.Context) error {
	_, err := db.read.ExecContext(ctx, "pragma wal_checkpoint(passive)")
	return err
}

// Path returns the path of the database file.
func (db *DB) Path() string { return db.path }

// Close waits for accepted operations and closes the files. If the database is lost, the files are
// not closed: SQLite would remove the log next to the file that replaced it.
func (db *DB) Close() error {
	err := db.writer.Close()
	if closing := db.closing.Swap(nil); closing != nil {
		(*closing)()
	}
	if db.Lost() != nil {
		return err
	}
	return errors.Join(err, db.confined.close(), db.read.Close(), db.writeDB.Close())
}

// existing is the DSN parameter that prevents a connection from creating the file. If the file was
// removed, SQLite would create an empty one and delete the log.
const existing = "mode=rw"

// create creates the empty file that SQLite treats as a new database.
func create(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("cannot create the database %s: look at the owner and the permissions of its folder, and at the free space: %w", path, err)
	}
	return f.Close()
}

// probe inspects the file before SQLite opens it, because SQLite treats an empty file as a new
// database. fresh reports whether the database must be created.
func probe(path string) (fresh bool, err error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("cannot open the database %s: %w", path, err)
	}
	if info.IsDir() {
		return false, &CorruptError{path, "it is a folder"}
	}

	if info.Size() > 0 {
		return false, checkHeader(path)
	}

	// If the process is killed before the first commit, a new file stays empty. If an empty file
	// has a log, the database lost its content.
	if wal, err := os.Stat(path + "-wal"); err == nil && wal.Size() > 0 {
		return false, &CorruptError{path, "it is empty, but its write-ahead log is not"}
	}

	return true, nil
}

// checkHeader returns a *CorruptError if the file does not begin with SQLite's magic string. SQLite
// itself treats a one-byte file as new. The check is skipped if there is a rollback journal: the
// header may be half written, and SQLite restores it.
func checkHeader(path string) error {
	if _, err := os.Stat(path + "-journal"); err == nil {
		return nil
	}

	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("cannot open the database %s: %w", path, err)
	}
	defer f.Close()

	const magic = "SQLite format 3\x00"
	begin := make([]byte, len(magic))
	if _, err := io.ReadFull(f, begin); err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("cannot read the database %s: %w", path, err)
	}
	if string(begin) != magic {
		return &CorruptError{path, "it is damaged or not a database (it does not begin like one)"}
	}

	return nil
}

// initialize checks the identity and integrity of the file, and migrates it. It enables the
// write-ahead log only after these checks, because that permanently changes the file's header.
func (db *DB) initialize(ctx context.Context, o Options, fresh bool) error {
	if fresh {
		var setup []string
		// SQLite accepts these settings only while the file is empty.
		if o.PageSize > 0 {
			setup = append(setup, fmt.Sprintf("pragma page_size=%d", o.PageSize))
		}
		if o.AutoVacuum {
			setup = append(setup, "pragma auto_vacuum=incremental")
		}
		for _, pragma := range append(setup, fmt.Sprintf("pragma application_id=%d", o.ApplicationID)) {
			if _, err := db.writeDB.ExecContext(ctx, pragma); err != nil {
				return openError(o.Path, err)
			}
		}
	}

	var id int32
	if err := db.writeDB.QueryRowContext(ctx, "pragma application_id").Scan(&id); err != nil {
		return openError(o.Path, err)
	}

	if id == 0 && !fresh {
		// If the process is killed between SQLite's first page and the application id, the new
		// database has neither an id nor tables.
		var objects int
		if err := db.writeDB.QueryRowContext(ctx, "select count(*) from sqlite_schema").Scan(&objects); err != nil {
			return openError(o.Path, err)
		}
		if objects == 0 {
			return db.initialize(ctx, o, true)
		}
	}

	if id != o.ApplicationID {
		return &CorruptError{o.Path, fmt.Sprintf("it belongs to another program (application id %#x, not %#x)", id, o.ApplicationID)}
	}

	if !o.SkipCheck {
		if err := check(ctx, db.writeDB, o.Path, false); err != nil {
			return err
		}
	}

	var mode string
	if err := db.writeDB.QueryRowContext(ctx, "pragma journal_mode=wal").Scan(&mode); err != nil {
		return openError(o.Path, err)
	}
	if mode != "wal" {
		return fmt.Errorf("the database %s cannot have a write-ahead log where it is (SQLite keeps journal mode %s); put it on a local disk", o.Path, mode)
	}

	if err := migrate(ctx, db.writeDB, o); err != nil {
		return err
	}
	return db.measurePages(ctx, o.LogSize)
}

// measurePages reads the page size and configures automatic checkpoints for logs of logSize bytes.
func (db *DB) measurePages(ctx context.Context, logSize int64) error {
	if err := db.writeDB.QueryRowContext(ctx, "pragma page_size").Scan(&db.pageSize); err != nil {
		return openError(db.path, err)
	}

	if logSize <= 0 {
		logSize = 1000 * 4096 // SQLite's default
	}
	if _, err := db.writeDB.ExecContext(ctx, fmt.Sprintf("pragma wal_autocheckpoint=%d", logSize/db.pageSize)); err != nil {
		return openError(db.path, err)
	}
	return nil
}

// PageSize returns the page size of the file, in bytes.
func (db *DB) PageSize() int64 { return db.pageSize }

// dsn returns the data source name of a file. It escapes the path, so that no character of the path
// is parsed as a parameter.
func dsn(path string, params ...string) string {
	u := url.URL{Scheme: "file", Path: filepath.ToSlash(path)}
	if !strings.HasPrefix(u.Path, "/") { // a relative path, or C:/… on Windows
		u = url.URL{Scheme: "file", Opaque: (&url.URL{Path: filepath.ToSlash(path)}).EscapedPath()}
	}

	params = append([]string{
		fmt.Sprintf("_pragma=busy_timeout(%d)", busyTimeout), "_pragma=synchronous(FULL)", "_pragma=foreign_keys(1)",
	}, params...)
	return u.String() + "?" + strings.Join(params, "&")
}

// strictQuotes is the DSN parameter that turns off double-quoted strings. With them, SQLite treats
// an unknown name as text: select "amout" would return amout for each row.
const strictQuotes = "_dqs=0"

// openPool opens a pool with the given maximum number of connections.
func openPool(c connector, connections int) *sql.DB {
	db := sql.OpenDB(c)
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	return db
}

// openOne opens a pool of a single connection with its own driver instance.
func openOne(path string, params ...string) *sql.DB {
	return openPool(connector{driver: &msqlite.Driver{}, dsn: dsn(path, params...)}, 1)
}

// connector opens connections of one driver instance, without registering a driver globally.
type connector struct {
	driver  *msqlite.Driver
	dsn     string
	prepare func(context.Context, driver.Conn) error // optional; sets up a new connection
}

func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.driver.Open(c.dsn)
	if err != nil || c.prepare == nil {
		return conn, err
	}
	if err := c.prepare(ctx, conn); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

func (c connector) Driver() driver.Driver { return c.driver }
