package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"syscall"
	"time"

	"rouse/internal/storage/dbfile"
	"rouse/internal/storage/sqlite"
)

// checkAtOnce is the maximum size, in bytes, of a ledger that is checked before it is used. A
// larger ledger is checked in the background.
const checkAtOnce = 64 << 20

// file manages the SQLite file of a ledger: its marker, and the check that reads the whole file.
//
// A file that was closed properly is compared with its checksum. Until the comparison ends, writes
// stay in the log, so that they do not overwrite damage. A file that was not closed has no
// checksum, so SQLite checks its structure.
type file struct {
	path   string
	log    *slog.Logger
	found  dbfile.Marker
	marker *dbfile.Keeper
	db     *sqlite.DB

	comparing *os.File // file compared with its checksum in the background, or nil
	reserve   *dbfile.Reserve
	hold      *sqlite.Hold  // keeps writes in the log; nil if not needed
	stop      func()        // cancels the background check
	checked   chan struct{} // closed when the check has ended
	damaged   chan struct{} // closed when damage is found
	once      sync.Once     // guards the closing of damaged

	backups sync.Mutex // held while a backup is written

	mu      sync.Mutex
	failing error // disk error of the last write; nil if it succeeded
	since   time.Time
}

// pageSize is the page size of new ledgers, in bytes. A run changes one or two short rows in each
// of a dozen tables and indexes. Each changed page is written as a whole, so small pages save
// writes.
const pageSize = 1024

// logSize is the maximum size of the log of a ledger, in bytes.
const logSize = 8 << 20

// openFile opens or creates the SQLite file of a ledger.
func (l *DB) openFile(ctx context.Context, o Options) error {
	f, whole, err := inspectFile(o)
	if err != nil {
		return Refusal(o.Path, err)
	}

	late := !whole && o.large()
	var migrates time.Time
	f.db, err = sqlite.Open(ctx, sqlite.Options{
		Path: o.Path, ApplicationID: ApplicationID, Migrations: o.Migrations, AutoVacuum: true, PageSize: pageSize, LogSize: logSize, SkipCheck: whole || late,
		BeforeWrite: func() error { return f.beforeMigration(ctx) },
		BackupPath: func(version int) (string, error) {
			migrates = time.Now()
			o.Logger.Info("the ledger is brought to the schema of this rouse, which takes some seconds for each GB: it is backed up first", "path", o.Path, "schema", version, "bytes", dbfile.Size(o.Path))
			if o.Verified {
				return "", nil
			}
			return dbfile.BackupPath(o.Path, fmt.Sprintf("%s%d", beforeSchema, version+1), o.Now())
		},
	})
	if err != nil {
		// a changed file makes any other error misleading
		if f.comparing != nil {
			if e := f.compare(ctx); sqlite.Corrupt(e) {
				err = e
			}
		}
		return errors.Join(Refusal(o.Path, err), f.closeCompared())
	}

	if !migrates.IsZero() {
		o.Logger.Info("the ledger is of the schema of this rouse", "path", o.Path, "took", time.Since(migrates).Round(time.Millisecond).String())
	}

	if err := f.start(ctx, late); err != nil {
		return errors.Join(err, f.db.Close(), f.closeCompared())
	}

	l.file, l.writer, l.read, l.close = f, f.db.Writer(), newReader(f.db.Read(), f.afterRead), f.close
	l.RunIDs = countSQLite
	return nil
}

// large reports whether the check of a file is left for later.
func (o Options) large() bool { return o.Late || dbfile.Size(o.Path) > checkAtOnce }

// inspectFile reads the marker of a file that no process has open. It reports in whole whether the
// file needs no check.
func inspectFile(o Options) (f *file, whole bool, err error) {
	f = &file{path: o.Path, log: o.Logger, reserve: dbfile.NewReserve(o.Path, reserveSize), stop: func() {}, checked: make(chan struct{}), damaged: make(chan struct{})}
	if err := checkWritable(o.Path); err != nil {
		return nil, false, err
	}
	if f.found, err = dbfile.ReadMarker(o.Path); err != nil {
		return nil, false, err
	}

	// A file that was refused before is read at once, because its owner may have restored it.
	if f.found.State == dbfile.StateClosed && f.found.Reason == "" && o.large() && !dbfile.HasLog(o.Path) {
		if err := dbfile.QuickInspect(o.Path); err != nil {
			return nil, false, err
		}
		// Open it before SQLite does, and close it after: closing a file releases all locks that
		// the process has on it.
		if f.comparing, err = os.Open(o.Path); err != nil {
			return nil, false, err
		}
	} else if f.found, whole, err = dbfile.Inspect(o.Path, o.Logger); err != nil {
		return nil, false, err
	}

	f.marker = dbfile.NewKeeper(o.Path, f.found)
	return f, whole || o.Verified, nil
}

// checkWritable returns an error if an existing file cannot be opened for writing. SQLite would
// open such a file read-only and fail at the first write.
func checkWritable(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if errors.Is(err, syscall.EISDIR) {
		return &sqlite.CorruptError{Path: path, Reason: "it is a folder"}
	}
	if err != nil {
		return CannotWrite(path, err)
	}
	return f.Close()
}

// beforeMigration returns an error if the file is damaged. A migration rewrites the whole file, so
// the comparison must happen before it.
func (f *file) beforeMigration(ctx context.Context) error {
	if f.comparing != nil {
		if err := f.compare(ctx); err != nil {
			return err
		}
	}
	return f.marker.MarkOpen()
}

// compare reads the whole file. It returns a *sqlite.CorruptError if the file has changed since it
// was closed.
func (f *file) compare(ctx context.Context) error {
	same, err := f.found.Matches(ctx, f.comparing)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return f.marker.Quarantine(&sqlite.CorruptError{Path: f.path, Reason: fmt.Sprintf("it cannot be read: %v", err)})
	case !same:
		return f.marker.Changed()
	}

	f.marker.SetChecked()
	return nil
}

// start begins the background check if one is needed.
func (f *file) start(ctx context.Context, late bool) error {
	// The file is new, or was not closed properly.
	if f.found.State == "" || dbfile.HasLog(f.path) {
		if err := f.marker.MarkOpen(); err != nil {
			return err
		}
	}

	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	check := f.db.Check
	switch {
	case f.marker.Checked(), !late:
		f.marker.SetChecked()
		close(f.checked)
		stop()
		return nil
	case f.comparing != nil:
		var err error
		if f.hold, err = f.db.Hold(ctx); err != nil {
			stop()
			return err
		}
		f.marker.Hold()
		check = f.compare
	}

	f.stop = stop
	go func() {
		defer close(f.checked)
		f.checkInBackground(background, check)
	}()
	return nil
}

func (f *file) checkInBackground(ctx context.Context, check func(context.Context) error) {
	err := check(ctx)
	switch {
	case err == nil:
		f.marker.SetChecked()
		if err := f.release(); err != nil {
			f.log.Warn("the ledger is sound, but its log cannot be emptied before it is closed", "path", f.path, "error", err)
		}
	case sqlite.Corrupt(err):
		f.setDamaged(err)
	case ctx.Err() == nil:
		f.log.Warn("the ledger could not be checked; it is checked when it is next opened", "path", f.path, "error", err)
	}
}

// release lets the log be copied into the file.
func (f *file) release() error {
	if f.hold == nil {
		return nil
	}
	if err := f.marker.Release(); err != nil {
		return err
	}

	err := f.hold.Release()
	f.hold = nil
	return err
}

// setDamaged stops all writes, also after a restart. The file stays unchanged.
func (f *file) setDamaged(err error) {
	var bad *sqlite.CorruptError
	if !errors.As(err, &bad) {
		bad = &sqlite.CorruptError{Path: f.path, Reason: fmt.Sprintf("it is damaged (%v)", err)}
	}
	if e := f.marker.Quarantine(bad); e != error(bad) { //nolint:errorlint // the marker may return more than bad
		f.log.Error("that the ledger is damaged could not be kept", "path", f.path, "error", e)
	}

	f.once.Do(func() {
		f.log.Error("the ledger is damaged, and is not written to any more", "error", Refusal(f.path, bad))
		close(f.damaged)
	})
}

// setLost marks a file that has appeared in place of the lost ledger, so that it is not opened
// without confirmation. It does nothing if there is no file. The ledger works again once it is
// restored with its log.
func (f *file) setLost(lost *sqlite.LostError) {
	if dbfile.Size(f.path) == 0 || f.marker.Quarantined() != nil {
		return
	}
	f.log.Error("the ledger is lost, and is not opened any more without a question", "path", f.path, "error", f.marker.Lost(lost))
}

// close finishes the accepted writes and stores the checksum.
func (f *file) close() error {
	// Close the writer first, or an accepted write could reach the log after the check below.
	errs := []error{f.db.Writer().Close()}

	// Closing copies the log into the file, so the check must finish first if there is a log. If
	// no write happened, the existing marker stays valid.
	if f.comparing == nil || !dbfile.HasLog(f.path) {
		f.stop()
	}
	<-f.checked
	f.stop()

	damaged := f.marker.Quarantined() != nil
	if !damaged {
		errs = append(errs, f.release())
	}

	errs = append(errs, f.db.Close())
	if f.hold != nil {
		errs = append(errs, f.hold.Release())
	}

	errs = append(errs, f.closeCompared())
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return f.marker.MarkClosed()
}

func (f *file) closeCompared() error {
	if f.comparing == nil {
		return nil
	}
	return f.comparing.Close()
}

// beforeWrite returns an error if the file is damaged. Otherwise it invalidates the checksum.
func (f *file) beforeWrite() error {
	err := f.marker.MarkOpen()
	if err == nil || f.marker.Quarantined() != nil {
		return Refusal(f.path, err)
	}
	f.setFailing(err)
	return err
}

// afterWrite records whether the disk accepted a write.
func (f *file) afterWrite(err error) error {
	switch {
	case err == nil:
		f.setFailing(nil)
	case sqlite.Corrupt(err):
		return f.foundDamage(err)
	case sqlite.StorageFailed(err):
		f.setFailing(err)
	}
	return err
}

// afterRead records damage if it was the cause of a failed read.
func (f *file) afterRead(err error) error {
	if !sqlite.Corrupt(err) {
		return err
	}
	return f.foundDamage(err)
}

// foundDamage records damage found by a read or a write. It returns a *ReadOnlyError, as all later
// writes do.
func (f *file) foundDamage(err error) error {
	f.setDamaged(err)
	return errors.Join(Refusal(f.path, f.marker.Quarantined()), err)
}

func (f *file) setFailing(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failing == nil || err == nil {
		f.since = time.Now()
	}
	f.failing = err
}

// SetFailing sets the error of the last write. It is for tests.
func SetFailing(l *DB, err error) { l.file.setFailing(err) }

// WritesFail returns the error of the last write, and the time since when writes fail. The error is
// nil if the last write succeeded, or if there was no write yet.
func (l *DB) WritesFail() (since time.Time, err error) {
	if l.file == nil {
		return time.Time{}, nil
	}

	l.file.mu.Lock()
	defer l.file.mu.Unlock()
	return l.file.since, l.file.failing
}

// File returns the SQLite database of the ledger, and the marker of its file as it was when opened.
// It returns false for PostgreSQL.
func (l *DB) File() (*sqlite.DB, dbfile.Marker, bool) {
	if l.file == nil {
		return nil, dbfile.Marker{}, false
	}
	return l.file.db, l.file.found, true
}

// Damaged returns a channel that is closed when the ledger is found to be damaged and becomes
// read-only. The channel is nil if the ledger has no writable file.
func (l *DB) Damaged() <-chan struct{} {
	if l.file == nil {
		return nil
	}
	return l.file.damaged
}
