package maint

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"rouse/internal/ledger/record"
	"rouse/internal/ledger/store"
	"rouse/internal/storage/dbfile"
	"rouse/internal/storage/sqlite"
)

// Replaced describes the replacement of a ledger.
type Replaced struct {
	From    string   `json:"from"`   // path of the backup; empty for an empty ledger
	Kept    string   `json:"kept"`   // folder of the previous ledger; may be empty
	Skipped []string `json:"passed"` // newer backups that "last" skipped because they are damaged
}

// Restore replaces a ledger with a copy of a backup. from is "last", a name of a backup or a unique
// prefix of one, or an absolute file path. No process may have the ledger open. The previous ledger
// is kept. A crash leaves either the old or the new one.
func Restore(ctx context.Context, o store.Options, from string) (Replaced, error) {
	all, err := store.Backups(o.Path)
	if err != nil {
		return Replaced{}, err
	}

	out := Replaced{Skipped: []string{}}
	if from == dbfile.LastBackup {
		out.From, out.Skipped, err = dbfile.LastGood(ctx, all, store.ApplicationID)
		if out.From == "" && err == nil {
			err = &store.TargetError{Message: fmt.Sprintf("there is no good backup of the ledger (%d are damaged); to begin with an empty one: rouse ledger reset", len(out.Skipped)), Missing: true}
		}
	} else {
		out.From, err = dbfile.Find(o.Path, all, from, "the ledger", "rouse ledger backups")
	}
	if err != nil {
		return Replaced{}, err
	}

	return replace(ctx, o, out, func(path string) error { return dbfile.CopyBackup(ctx, out.From, path, store.ApplicationID) })
}

// Reset replaces a ledger with an empty one and keeps the previous one. No process may have the
// ledger open.
func Reset(ctx context.Context, o store.Options) (Replaced, error) {
	return replace(ctx, o, Replaced{Skipped: []string{}}, func(string) error { return nil })
}

// replace replaces a ledger with the file that make writes. If make writes no file, the new ledger
// is empty.
func replace(ctx context.Context, o store.Options, out Replaced, make func(path string) error) (Replaced, error) {
	o = o.WithDefaults()
	if err := refuseFolder(o.Path); err != nil {
		return out, err
	}

	// Complete a replacement that was interrupted. The current file may be damaged, which is a
	// reason to replace it.
	if _, _, err := dbfile.Inspect(o.Path, o.Logger); err != nil && !errors.As(err, new(*sqlite.CorruptError)) {
		return out, err
	}
	if err := dbfile.DiscardNew(o.Path); err != nil {
		return out, err
	}

	// The new file is complete, with the newest schema and its checksum, before the old one is
	// changed.
	aside := dbfile.AsidePath()
	err := make(o.Path + dbfile.NewSuffix)
	if err == nil {
		err = prepareNew(ctx, o, out.From, aside)
	}
	if err != nil {
		return out, errors.Join(fmt.Errorf("the ledger was left as it is: %w", err), dbfile.DiscardNew(o.Path))
	}
	if err := dbfile.Replace(o.Path, aside); err != nil {
		return out, err
	}

	kept := filepath.Join(filepath.Dir(o.Path), aside)
	// The folder may exist with remains of an earlier ledger, so check for the file.
	if _, err := os.Stat(filepath.Join(kept, filepath.Base(o.Path))); err == nil {
		out.Kept = kept
	}

	return out, nil
}

// refuseFolder returns an error if the path of a ledger is a folder.
func refuseFolder(path string) error {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return &store.TargetError{Message: fmt.Sprintf("the ledger %s is a folder: move it away, and say this again", path)}
	}
	return nil
}

// prepareNew migrates a new ledger to the newest schema and records the replacement in it.
func prepareNew(ctx context.Context, o store.Options, from, aside string) error {
	kind, text := "ledger.restored", "from "+from
	if from == "" {
		kind, text = "ledger.reset", "an empty one"
	}
	if _, err := os.Stat(o.Path); err == nil {
		text += "; the one before is in " + aside
	}

	o.Path, o.Verified = o.Path+dbfile.NewSuffix, true
	return recordReplaced(ctx, o, kind, text)
}

// recordReplaced opens a ledger and adds an event about an action of its owner.
func recordReplaced(ctx context.Context, o store.Options, kind, text string) error {
	data, err := json.Marshal(map[string]string{"by": "user", "text": text})
	if err != nil {
		return err
	}

	db, err := store.Open(ctx, o)
	if err != nil {
		return err
	}
	err = store.Write(ctx, db, func(tx *store.Tx) error {
		return record.AddEvent(tx, record.Event{Kind: kind, At: db.Now(), Data: data}, nil)
	})
	return errors.Join(err, db.Close())
}

// Accept makes a ledger usable again that was refused because another program changed it. It
// returns an error if the file is not intact. No process may have the ledger open.
func Accept(ctx context.Context, o store.Options) error {
	o = o.WithDefaults()
	if _, err := os.Stat(o.Path); errors.Is(err, fs.ErrNotExist) {
		return &store.TargetError{Message: fmt.Sprintf("there is nothing to accept: the ledger %s is missing. Put it back, with its log %s-wal if it has one. %s", o.Path, filepath.Base(o.Path), store.DamageRemedy(o.Path, dbfile.ReasonLost)), Missing: true}
	}

	if err := refuseFolder(o.Path); err != nil {
		return err
	}

	_, _, err := dbfile.Inspect(o.Path, o.Logger)
	var bad *sqlite.CorruptError
	switch {
	case err == nil:
		return &store.TargetError{Message: "there is nothing to accept: nothing is wrong with the ledger"}
	case !errors.As(err, &bad):
		return err
	}

	if err := sqlite.Verify(ctx, o.Path, store.ApplicationID, true); err != nil {
		return fmt.Errorf("it cannot be accepted as it is: %w", store.Refusal(o.Path, err))
	}
	// The file gets its checksum when it is opened and closed.
	if err := dbfile.WriteMarker(o.Path, dbfile.Marker{State: dbfile.StateOpen}); err != nil {
		return err
	}

	o.Verified = true
	return recordReplaced(ctx, o, "ledger.accepted", bad.Reason)
}
