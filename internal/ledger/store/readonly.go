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

// ReadOnlyError is returned if a ledger can be read but not written. It has the reason and a remedy
// for the owner.
type ReadOnlyError struct {
	Why, Remedy string
	err         error
}

func (e *ReadOnlyError) Error() string { return e.Why + "; it is only read. " + e.Remedy }

func (e *ReadOnlyError) Unwrap() error { return e.err }

// Refusal wraps an error of a file that cannot be written in a *ReadOnlyError with a remedy. It
// returns other errors unchanged.
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

// CannotWrite returns the *ReadOnlyError for a file that cannot be written because of its disk or
// its permissions.
func CannotWrite(path string, err error) *ReadOnlyError {
	return &ReadOnlyError{Why: fmt.Sprintf("%s cannot be written: %v", path, err), Remedy: "Look at the free space, at the owner and the permissions of the folder, and whether its disk is mounted to be read only", err: err}
}

// DamageRemedy returns instructions for the owner of a damaged ledger.
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

// OpenReadOnly opens a ledger that cannot be written because of why. Every write returns why. It
// returns an error if the file does not have the schema version of this rouse.
func OpenReadOnly(ctx context.Context, o Options, why *ReadOnlyError) (*DB, error) {
	return openReadOnly(ctx, o, why, sqlite.OpenReadOnly)
}

// OpenShared opens a ledger for reading while another process may have it open for writing.
func OpenShared(ctx context.Context, o Options) (*DB, error) {
	return openReadOnly(ctx, o, onlyRead(o), sqlite.OpenShared)
}

// OpenFrozen opens a ledger for reading without creating files beside it, for example one in a
// backup. No other process may have it open.
func OpenFrozen(ctx context.Context, o Options) (*DB, error) {
	return openReadOnly(ctx, o, onlyRead(o), sqlite.OpenReadOnly)
}

func onlyRead(o Options) *ReadOnlyError {
	return &ReadOnlyError{Why: "the ledger " + o.Path + " was opened to be read", Remedy: "Nothing is wrong with it"}
}

// Schema returns the schema version of this rouse.
func Schema() int {
	steps, err := fs.Glob(Migrations, "*.sql")
	if err != nil {
		return 0 // the pattern is valid
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

	// A query can start while the rows of another query are read.
	db.SetMaxOpenConns(readers)
	l := newDB(o)
	l.read, l.close, l.readOnly, l.RunIDs = newReader(db, func(err error) error { return damagedRead(o.Path, err) }), db.Close, why, countSQLite
	if err := ReadEpochs(ctx, l); err != nil {
		return nil, errors.Join(why, err, l.Close())
	}

	return l, nil
}

const readers = 4

// damagedRead adds the remedy to the error of a read if the file is damaged. It is for a file that
// this process does not write.
func damagedRead(path string, err error) error {
	if !sqlite.Corrupt(err) {
		return err
	}
	return errors.Join(Refusal(path, &sqlite.CorruptError{Path: path, Reason: fmt.Sprintf("it is damaged (%v)", err)}), err)
}

// Glance returns a *ReadOnlyError if a closed ledger cannot be used, as far as that is visible
// without reading the file.
func Glance(o Options) error {
	err := dbfile.QuickInspect(o.Path)
	if err == nil {
		err = checkWritable(o.Path)
	}
	return Refusal(o.Path, err)
}

// ReadOnly returns a *ReadOnlyError if the ledger is read-only, or nil.
func (l *DB) ReadOnly() error {
	if l.readOnly != nil {
		return l.readOnly
	}
	if l.file != nil {
		return Refusal(l.file.path, l.file.marker.Quarantined())
	}
	return nil
}
