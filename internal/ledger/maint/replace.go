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

// Replaced is what became of a ledger that was replaced.
type Replaced struct {
	From    string   `json:"from"`   // the backup; "" is an empty ledger
	Kept    string   `json:"kept"`   // the folder in which the one before is; "" when there was none
	Skipped []string `json:"passed"` // newer backups that "last" did not take, because they are damaged
}

// Restore replaces a ledger that nobody has open by a copy of a backup: "last", the name of one or
// how it begins, or a file. The one before is kept; a crash leaves the old one or the new one.
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

// Reset replaces a ledger that nobody has open, which is kept, by an empty one.
func Reset(ctx context.Context, o store.Options) (Replaced, error) {
	return replace(ctx, o, Replaced{Skipped: []string{}}, func(string) error { return nil })
}

// replace has make write the new ledger; if that writes nothing, it is an empty one.
func replace(ctx context.Context, o store.Options, out Replaced, make func(path string) error) (Replaced, error) {
	o = o.WithDefaults()
	if err := refuseFolder(o.Path); err != nil {
		return out, err
	}

	// A replacement that was cut off is completed first. What is there may well be damaged: that is
	// why it is replaced.
	if _, _, err := dbfile.Inspect(o.Path, o.Logger); err != nil && !errors.As(err, new(*sqlite.CorruptError)) {
		return out, err
	}
	if err := dbfile.DiscardNew(o.Path); err != nil {
		return out, err
	}

	// The new file is complete, with the newest schema and its checksum, before the old one is
	// touched.
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
	// The folder alone says nothing: something of one that was removed can be left.
	if _, err := os.Stat(filepath.Join(kept, filepath.Base(o.Path))); err == nil {
		out.Kept = kept
	}

	return out, nil
}

// refuseFolder says what to do about a folder in the place of a ledger; nil when there is none.
func refuseFolder(path string) error {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return &store.TargetError{Message: fmt.Sprintf("the ledger %s is a folder: move it away, and say this again", path)}
	}
	return nil
}

// prepareNew brings a new ledger to the newest schema and records in it what happened.
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

// recordReplaced opens a ledger to write an event about what its owner did with it.
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

// Accept lets a ledger that nobody has open be used again that was refused because another program
// changed it, if it is sound.
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
	// An opened file gets its checksum when it is closed.
	if err := dbfile.WriteMarker(o.Path, dbfile.Marker{State: dbfile.StateOpen}); err != nil {
		return err
	}

	o.Verified = true
	return recordReplaced(ctx, o, "ledger.accepted", bad.Reason)
}
