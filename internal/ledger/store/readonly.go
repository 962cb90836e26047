package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"

	"rouse/internal/storage/dbfile"
	"rouse/internal/storage/sqlite"
)

// ReadOnlyError is why a ledger can be read and not written, and what its owner can do.
type ReadOnlyError struct {
	Why, Remedy string
	err         error
}

func (e *ReadOnlyError) Error() string { return e.Why + "; it is only read. " + e.Remedy }

func (e *ReadOnlyError) Unwrap() error { return e.err }

// Refusal makes of the error about a file that cannot be written one that says what to do, a
// *ReadOnlyError; others stay as they are.
func Refusal(path string, err error) error {
	var bad *sqlite.CorruptError
	switch {
	case err == nil, errors.As(err, new(*ReadOnlyError)):
		return err
	case errors.As(err, &bad):
		return &ReadOnlyError{Why: fmt.Sprintf("the ledger %s cannot be used: %s", path, bad.Reason), Remedy: DamageRemedy(path, bad.Reason), err: err}
	case errors.Is(err, fs.ErrPermission), sqlite.StorageFailed(err):
		return CannotWrite(path, err)
	}
	return err
}

// CannotWrite is the *ReadOnlyError of a file, or of its folder, that its disk or its owner does not
// let be written.
func CannotWrite(path string, err error) *ReadOnlyError {
	return &ReadOnlyError{Why: fmt.Sprintf("%s cannot be written: %v", path, err), Remedy: "Look at the free space, at the owner and the permissions of the folder, and whether its disk is mounted to be read only", err: err}
}

// DamageRemedy is what the owner of a damaged ledger can do.
func DamageRemedy(path, reason string) string {
	remedy := ""
	if dbfile.Acceptable(reason) {
		remedy = "If a program of yours changed it: rouse ledger accept. "
	}

	if all, err := dbfile.Backups(path); err == nil && len(all) > 0 {
		remedy += fmt.Sprintf("To go on from the last backup (%s), without what was written later: rouse ledger restore last. ", all[0].Name)
	} else {
		remedy += "It has no backup in its folder; from one that is elsewhere: rouse ledger restore FILE. "
	}

	return remedy + "To begin with an empty one: rouse ledger reset"
}

// OpenReadOnly opens a ledger that cannot be written, for why; whatever would write is refused with
// that. It has to be of the schema that this rouse knows.
func OpenReadOnly(ctx context.Context, o Options, why *ReadOnlyError) (*DB, error) {
	return openReadOnly(ctx, o, why, sqlite.OpenReadOnly)
}

// OpenShared opens a ledger for reading that another process may have open, and write.
func OpenShared(ctx context.Context, o Options) (*DB, error) {
	return openReadOnly(ctx, o, onlyRead(o), sqlite.OpenShared)
}

// OpenFrozen opens a ledger for reading that nobody has open, and beside which nothing is to be written: one of a backup.
func OpenFrozen(ctx context.Context, o Options) (*DB, error) {
	return openReadOnly(ctx, o, onlyRead(o), sqlite.OpenReadOnly)
}

func onlyRead(o Options) *ReadOnlyError {
	return &ReadOnlyError{Why: "the ledger " + o.Path + " was opened to be read", Remedy: "Nothing is wrong with it"}
}

// Schema is the version of the schema that this rouse has.
func Schema() int {
	steps, err := fs.Glob(Migrations, "*.sql")
	if err != nil {
		return 0 // the pattern is sound
	}
	return len(steps)
}

func openReadOnly(ctx context.Context, o Options, why *ReadOnlyError, open func(path string) (*sql.DB, error)) (*DB, error) {
	db, err := open(o.Path)
	if err != nil {
		return nil, errors.Join(why, err)
	}

	var version int
	if err := db.QueryRowContext(ctx, "pragma user_version").Scan(&version); err != nil {
		return nil, errors.Join(why, err, db.Close())
	}
	if known := Schema(); version > known {
		return nil, errors.Join(why, sqlite.NewerSchema("the ledger "+o.Path, version, known, sqlite.NewHome), db.Close())
	} else if version < known {
		return nil, errors.Join(why, fmt.Errorf("it cannot be read either: it is of schema %d and this rouse reads schema %d", version, known), db.Close())
	}

	// A query can begin while the rows of another are read.
	db.SetMaxOpenConns(readers)
	l := newDB(o)
	l.read, l.close, l.readOnly, l.RunIDs = newReader(db, func(err error) error { return damagedRead(o.Path, err) }), db.Close, why, countSQLite
	if err := ReadEpochs(ctx, l); err != nil {
		return nil, errors.Join(why, err, l.Close())
	}

	return l, nil
}

const readers = 4

// damagedRead is what the caller of a read is told that failed with err, where the file is not this process's to write: what to do, if it is damaged.
func damagedRead(path string, err error) error {
	if !sqlite.Corrupt(err) {
		return err
	}
	return errors.Join(Refusal(path, &sqlite.CorruptError{Path: path, Reason: fmt.Sprintf("it is damaged (%v)", err)}), err)
}

// Glance says what can be said against a closed ledger without reading it, a *ReadOnlyError, or nil.
func Glance(o Options) error {
	err := dbfile.QuickInspect(o.Path)
	if err == nil {
		err = checkWritable(o.Path)
	}
	return Refusal(o.Path, err)
}

// ReadOnly is why the ledger is only read: a *ReadOnlyError, or nil.
func (l *DB) ReadOnly() error {
	if l.readOnly != nil {
		return l.readOnly
	}
	if l.file != nil {
		return Refusal(l.file.path, l.file.marker.Quarantined())
	}
	return nil
}
