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
	busyTimeout    = 5000 // milliseconds: another process may hold the file for a backup
)

// Options says how to open one database file.
type Options struct {
	Path string
	// ApplicationID marks whose file this is; it is written into a new file and must be
	// found in an old one.
	ApplicationID int32
	// Migrations holds files NNNN_name.sql in its root, applied in order and only forward.
	Migrations fs.FS
	Readers    int // connections that read at once; 0 means 4
	// AutoVacuum lets a new file give space back, in steps, with pragma incremental_vacuum.
	AutoVacuum bool
	// PageSize is the page size of a new file in bytes; 0 means SQLite's own.
	PageSize int
	// LogSize is the length in bytes at which the log is brought into the file; 0 means about 4
	// MiB.
	LogSize int64
	// SkipCheck leaves out the check that reads the whole file: the caller knows that the file is
	// intact, or calls Check later.
	SkipCheck bool
	// BeforeWrite, when set, is called before every write, and before an old file is
	// migrated; an error refuses it.
	BeforeWrite func() error
	// BackupPath names the file for the backup that is made before a schema of this version is
	// migrated, "" for none; nil means PATH.bak-VERSION, which is replaced.
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

	confined *confined // nil until it is first needed; the writer's goroutine has it
	closing  atomic.Pointer[func()]
}

// Open opens or creates a database, checks it and brings it to the newest schema.
// A damaged or foreign file is a *CorruptError.
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

	// Before SQLite opens it, which would create a database in an empty file.
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
		// SQLite has one writer at a time; a second connection would only wait for the first.
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

// Do runs op inside a transaction that it may share with other callers, and returns once
// that transaction is on disk. See Writer.Do.
func (db *DB) Do(ctx context.Context, op func(*Tx) error) error {
	if err := db.beforeWrite(); err != nil {
		return err
	}
	return db.writer.Do(ctx, op)
}

// Writer is the group-commit goroutine behind Do.
func (db *DB) Writer() *Writer { return db.writer }

// Read is the pool of readers. Its connections refuse to write.
func (db *DB) Read() *sql.DB { return db.read }

// Observe sets the only observer of the database. The writer's goroutine calls committed after each
// batch, before its callers return; committed must not wait. closing is called after the last write
// and before the file is closed; it must close any Snapshot.
func (db *DB) Observe(committed, closing func()) {
	db.writer.committed.Store(&committed)
	db.closing.Store(&closing)
}

// Turn runs fn while nothing is written to the database, so that what its log holds is whole
// transactions.
func (db *DB) Turn(ctx context.Context, fn func() error) error {
	return db.writer.submit(ctx, &operation{exclusive: fn, reads: true, done: make(chan struct{})})
}

// Checkpoint brings what the log holds into the file, as far as nobody reads from the log.
func (db *DB) Checkpoint(ctx context.Context) error {
	_, err := db.read.ExecContext(ctx, "pragma wal_checkpoint(passive)")
	return err
}

// Path is the file of the database.
func (db *DB) Path() string { return db.path }

// Close waits for the operations that were accepted and closes the file. The files of a database
// that is lost are left alone: SQLite would remove the log of whatever stands in its place by now.
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

// existing keeps a connection from creating the file. If the file was taken away, an empty one
// would come in its place, and SQLite would remove the log.
const existing = "mode=rw"

// create makes the empty file that SQLite takes for a new database.
func create(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("cannot create the database %s: look at the owner and the permissions of its folder, and at the free space: %w", path, err)
	}
	return f.Close()
}

// probe inspects the file before SQLite does, which takes an empty file for a new database. It
// reports whether the database is to be created.
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

	// A creation that was killed before its first commit leaves an empty file; with a
	// log beside it, an empty file is a database that lost its content.
	if wal, err := os.Stat(path + "-wal"); err == nil && wal.Size() > 0 {
		return false, &CorruptError{path, "it is empty, but its write-ahead log is not"}
	}

	return true, nil
}

// checkHeader refuses a file that does not begin like a database: SQLite takes a file of one byte
// for a new one. With a rollback journal beside it, the beginning may be half written, and SQLite
// restores it.
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

// initialize checks identity and health, and migrates. Only a file that is ours is switched
// to a write-ahead log, which rewrites its header and stays for every later connection.
func (db *DB) initialize(ctx context.Context, o Options, fresh bool) error {
	if fresh {
		var setup []string
		// Before anything is in the file: SQLite takes them only then.
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
		// A creation that was killed after SQLite wrote its first page, and before this
		// program wrote its mark, leaves a database without a mark and without a table.
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

// measurePages reads the page size, and has the log brought into the file once it has logSize
// bytes.
func (db *DB) measurePages(ctx context.Context, logSize int64) error {
	if err := db.writeDB.QueryRowContext(ctx, "pragma page_size").Scan(&db.pageSize); err != nil {
		return openError(db.path, err)
	}

	if logSize <= 0 {
		logSize = 1000 * 4096 // SQLite's own
	}
	if _, err := db.writeDB.ExecContext(ctx, fmt.Sprintf("pragma wal_autocheckpoint=%d", logSize/db.pageSize)); err != nil {
		return openError(db.path, err)
	}
	return nil
}

// PageSize is how large the pages of the file are, in bytes.
func (db *DB) PageSize() int64 { return db.pageSize }

// dsn is the data source name of a file, in which no character of its path counts as a parameter.
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

// strictQuotes keeps SQLite from taking a name in double quotes that it does not know for a
// text: select "amout" would answer amout for each row.
const strictQuotes = "_dqs=0"

// openPool opens a pool of so many connections.
func openPool(c connector, connections int) *sql.DB {
	db := sql.OpenDB(c)
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	return db
}

// openOne opens a pool of a single connection, on a driver instance of its own.
func openOne(path string, params ...string) *sql.DB {
	return openPool(connector{driver: &msqlite.Driver{}, dsn: dsn(path, params...)}, 1)
}

// connector opens connections of one driver instance; nothing is registered globally.
type connector struct {
	driver  *msqlite.Driver
	dsn     string
	prepare func(context.Context, driver.Conn) error // optional; makes a new connection ready for use
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
