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

// checkAtOnce is up to which size a ledger is checked before it is used, in bytes; that takes some
// 100 ms at most. A larger one is checked while it is used.
const checkAtOnce = 64 << 20

// file is the upkeep of a ledger's SQLite file: its marker, and the check that reads all of it.
//
// A file that was closed is compared with its checksum. As long as that goes on, what is written
// stays in the log, so that damage is seen before anything is written over it. A file that was not
// closed has no checksum; SQLite checks its structure.
type file struct {
	path   string
	log    *slog.Logger
	found  dbfile.Marker
	marker *dbfile.Keeper
	db     *sqlite.DB

	comparing *os.File // what is compared with its checksum in the background; nil: nothing is
	reserve   *dbfile.Reserve
	hold      *sqlite.Hold  // nil: nothing has to stay in the log
	stop      func()        // ends the check in the background
	checked   chan struct{} // closed when that has ended
	damaged   chan struct{} // closed when damage was found
	once      sync.Once     // closes damaged

	backups sync.Mutex // held while a backup is written

	mu      sync.Mutex
	failing error // why the last write failed, of the disk's reasons; nil: it did not
	since   time.Time
}

// pageSize is that of new ledgers, in bytes. A run changes one or two short rows in each of a dozen tables and indexes, and every page that
// is changed is written, and synced, as a whole.
const pageSize = 1024

// logSize is how long its log gets: of 8 MiB a run alone writes a tenth less than of 4, and of 16 no less.
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
		if f.comparing != nil { // whatever else is said of a file that is not as it was closed would mislead
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

// large says whether the check of a file is left for later.
func (o Options) large() bool { return o.Late || dbfile.Size(o.Path) > checkAtOnce }

// inspectFile asks the marker of a file that nobody has open. whole says that no check is needed.
func inspectFile(o Options) (f *file, whole bool, err error) {
	f = &file{path: o.Path, log: o.Logger, reserve: dbfile.NewReserve(o.Path, reserveSize), stop: func() {}, checked: make(chan struct{}), damaged: make(chan struct{})}
	if err := checkWritable(o.Path); err != nil {
		return nil, false, err
	}
	if f.found, err = dbfile.ReadMarker(o.Path); err != nil {
		return nil, false, err
	}

	// One that was refused before is read at once: it may have been put back as it was.
	if f.found.State == dbfile.StateClosed && f.found.Reason == "" && o.large() && !dbfile.HasLog(o.Path) {
		if err := dbfile.QuickInspect(o.Path); err != nil {
			return nil, false, err
		}
		// Opened before SQLite opens it, and closed after that: closing a file takes away the locks
		// that the process has on it.
		if f.comparing, err = os.Open(o.Path); err != nil {
			return nil, false, err
		}
	} else if f.found, whole, err = dbfile.Inspect(o.Path, o.Logger); err != nil {
		return nil, false, err
	}

	f.marker = dbfile.NewKeeper(o.Path, f.found)
	return f, whole || o.Verified, nil
}

// checkWritable tries to open an existing file for writing: SQLite would open it for reading alone, and
// fail at the first write.
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

// beforeMigration refuses to migrate a damaged file: a migration writes all over it, so that the
// comparison cannot wait.
func (f *file) beforeMigration(ctx context.Context) error {
	if f.comparing != nil {
		if err := f.compare(ctx); err != nil {
			return err
		}
	}
	return f.marker.MarkOpen()
}

// compare reads the whole file; a *sqlite.CorruptError says that it is not as it was closed.
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

// start begins the check in the background, if there is to be one.
func (f *file) start(ctx context.Context, late bool) error {
	// It was made just now, or was not closed.
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

// release lets what is written get into the file.
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

// setDamaged stops all writing, also after a restart. The file stays as it is.
func (f *file) setDamaged(err error) {
	var bad *sqlite.CorruptError
	if !errors.As(err, &bad) {
		bad = &sqlite.CorruptError{Path: f.path, Reason: fmt.Sprintf("it is damaged (%v)", err)}
	}
	if e := f.marker.Quarantine(bad); e != error(bad) { //nolint:errorlint // more than what was said
		f.log.Error("that the ledger is damaged could not be kept", "path", f.path, "error", e)
	}

	f.once.Do(func() {
		f.log.Error("the ledger is damaged, and is not written to any more", "error", Refusal(f.path, bad))
		close(f.damaged)
	})
}

// setLost keeps whatever stands in the ledger's place by now from being opened without a question. Where
// nothing does, it is missed anyway, and goes on once it is put back with its log.
func (f *file) setLost(lost *sqlite.LostError) {
	if dbfile.Size(f.path) == 0 || f.marker.Quarantined() != nil {
		return
	}
	f.log.Error("the ledger is lost, and is not opened any more without a question", "path", f.path, "error", f.marker.Lost(lost))
}

// close finishes what was accepted, and stores the checksum.
func (f *file) close() error {
	// First, or what was accepted could get into the log after the next look at it.
	errs := []error{f.db.Writer().Close()}

	// What is in the log gets into the file when it is closed, so the file has to be known. Where
	// nothing was written, the marker holds as it is.
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

// beforeWrite refuses to write to a damaged file, and voids the checksum of a sound one.
func (f *file) beforeWrite() error {
	err := f.marker.MarkOpen()
	if err == nil || f.marker.Quarantined() != nil {
		return Refusal(f.path, err)
	}
	f.setFailing(err)
	return err
}

// afterWrite remembers whether the disk takes what is written.
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

// afterRead looks whether a read failed because of damage.
func (f *file) afterRead(err error) error {
	if !sqlite.Corrupt(err) {
		return err
	}
	return f.foundDamage(err)
}

// foundDamage ends a read or a write that came upon damage before the check did like those after it, with a *ReadOnlyError.
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

// SetFailing makes a ledger report that its disk failed to take a write. It is for tests.
func SetFailing(l *DB, err error) { l.file.setFailing(err) }

// WritesFail says why the disk did not take the last write, and since when that is so; nil when it
// did, or when nothing was written yet.
func (l *DB) WritesFail() (since time.Time, err error) {
	if l.file == nil {
		return time.Time{}, nil
	}

	l.file.mu.Lock()
	defer l.file.mu.Unlock()
	return l.file.since, l.file.failing
}

// File is the database of a ledger on SQLite, and what was known of its file when it was opened; false for one on PostgreSQL.
func (l *DB) File() (*sqlite.DB, dbfile.Marker, bool) {
	if l.file == nil {
		return nil, dbfile.Marker{}, false
	}
	return l.file.db, l.file.found, true
}

// Damaged returns a channel that is closed when the ledger is found to be damaged, and cannot be
// written any more; nil where that cannot be.
func (l *DB) Damaged() <-chan struct{} {
	if l.file == nil {
		return nil
	}
	return l.file.damaged
}
