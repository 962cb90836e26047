package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"rouse/internal/storage/dbfile"
	"rouse/internal/storage/sqlite"
)

// The labels of the backups that are made automatically, and how many of each are kept.
const (
	beforeSchema = "before-schema-"
	daily        = "daily"
	keepBefore   = 5
	keepDaily    = 7
)

// dailyAge is how old the newest daily backup may be. It is a little less than a day, so that the
// hour at which it is made does not move on each day by the time between two looks.
const dailyAge = 23 * time.Hour

// errNoFile is what is said about a ledger that is not a file of its own.
var errNoFile = errors.New("this ledger has no file of its own: PostgreSQL keeps and checks it, and has tools for its backups")

// Backup is a copy of a ledger.
type Backup = dbfile.Backup

// TargetError is a place that a backup cannot be written to, or one that cannot be taken from.
type TargetError = dbfile.TargetError

// BackupSpec says where a copy of the ledger goes.
type BackupSpec struct {
	File      string // "" means backups/TIME.sqlite beside the ledger
	Overwrite bool   // File may exist
	Progress  func(done, of int64)
}

// Backup writes a copy of the ledger as it is at this instant, while others go on writing. The copy
// has its name once it was verified. Values in the folder of blobs are not part of it.
func (l *Ledger) Backup(ctx context.Context, spec BackupSpec) (Backup, error) {
	if err := l.hasFile(); err != nil {
		return Backup{}, err
	}

	path := spec.File
	if path == "" {
		var err error
		if path, err = dbfile.BackupPath(l.file.path, "", l.now()); err != nil {
			return Backup{}, err
		}
	}

	return l.file.backup(ctx, path, spec)
}

// hasFile refuses where there is no file that could be written.
func (l *Ledger) hasFile() error {
	if err := l.ReadOnly(); err != nil {
		return err
	}
	if l.file == nil {
		return errNoFile
	}
	return nil
}

func (f *file) backup(ctx context.Context, path string, spec BackupSpec) (Backup, error) {
	f.backups.Lock()
	defer f.backups.Unlock()

	if err := dbfile.CheckTarget(f.path, path, spec.Overwrite); err != nil {
		return Backup{}, err
	}

	var pages func(done, of int)
	if spec.Progress != nil {
		size := f.db.PageSize()
		pages = func(done, of int) { spec.Progress(int64(done)*size, int64(of)*size) }
	}

	made, err := dbfile.WriteBackup(ctx, path, applicationID, spec.Overwrite, func(to string) error { return f.db.Copy(ctx, to, pages) })
	var bad *sqlite.CorruptError
	if errors.As(err, &bad) && bad.Path == f.path {
		f.setDamaged(err)
	}
	return made, refusal(f.path, err)
}

// Backups lists the copies of the ledger at a path, and those that another took the place of, the
// newest first.
func Backups(path string) ([]Backup, error) { return dbfile.BackupsAndReplaced(path) }

// Backups lists the copies of this ledger.
func (l *Ledger) Backups() ([]Backup, error) {
	if l.path == "" {
		return nil, errNoFile
	}
	return Backups(l.path)
}

// BackUpDaily makes a backup if the newest of its kind is a day old, and removes those that are too
// many. A file that is being checked is waited for: damage is not to push good copies out.
func (l *Ledger) BackUpDaily(ctx context.Context) (made bool, err error) {
	if errors.Is(l.hasFile(), errNoFile) {
		return false, nil
	}
	if err := l.waitChecked(ctx); err != nil {
		return false, err
	}

	all, err := dbfile.Backups(l.file.path)
	if err != nil {
		return false, err
	}

	for _, b := range all {
		if b.Why == daily && l.now().Sub(b.At) < dailyAge {
			return false, nil
		}
	}

	path, err := dbfile.BackupPath(l.file.path, daily, l.now())
	if err == nil {
		_, err = l.file.backup(ctx, path, BackupSpec{})
	}
	if err != nil {
		return false, err
	}

	return true, l.file.prune()
}

// waitChecked waits until the whole file was checked, and refuses one that is damaged.
func (l *Ledger) waitChecked(ctx context.Context) error {
	if err := l.hasFile(); err != nil {
		return err
	}

	select {
	case <-l.file.checked:
		return l.ReadOnly()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// prune removes the backups that are too many.
func (f *file) prune() error {
	f.backups.Lock()
	defer f.backups.Unlock()
	return errors.Join(dbfile.Prune(f.path, daily, keepDaily), dbfile.Prune(f.path, strings.TrimSuffix(beforeSchema, "-"), keepBefore))
}

// Snapshot fixes the ledger at one instant, of which a copy can be made, and has the others be fixed at the same: they are
// called while nothing is written to the ledger, so that no run and no call begins. What was recorded as done by then is in
// their snapshots; of what they have done since, nothing but the calls that were on can be ahead of the ledger, as after a
// crash. No large value is removed until release is called.
func (l *Ledger) Snapshot(ctx context.Context, others func(context.Context) error) (_ *sqlite.Snapshot, release func(), err error) {
	if err := l.hasFile(); err != nil {
		return nil, nil, err
	}
	if err := l.waitChecked(ctx); err != nil { // damage is not to take the place of good copies
		return nil, nil, err
	}

	select {
	case l.pruning <- struct{}{}:
	case <-ctx.Done():
		return nil, nil, context.Cause(ctx)
	}
	release = func() { <-l.pruning }

	s, err := sqlite.OpenSnapshot(ctx, l.file.path)
	if err != nil {
		release()
		return nil, nil, err
	}
	err = l.writer.DoExclusive(ctx, func() error {
		if err := s.Take(ctx); err != nil {
			return err
		}
		return others(ctx)
	})
	if err != nil {
		release()
		return nil, nil, errors.Join(err, s.Close())
	}
	return s, release, nil
}

// Verify returns a *sqlite.CorruptError unless a file that nobody has open is an intact ledger.
func Verify(ctx context.Context, path string) error {
	return sqlite.Verify(ctx, path, applicationID, false)
}

// Replaced is what became of a ledger that was replaced.
type Replaced struct {
	From    string   `json:"from"`   // the backup; "" is an empty ledger
	Kept    string   `json:"kept"`   // the folder in which the one before is; "" when there was none
	Skipped []string `json:"passed"` // newer backups that "last" did not take, because they are damaged
}

// Restore replaces a ledger that nobody has open by a copy of a backup: "last", the name of one or
// how it begins, or a file. The one before is kept; a crash leaves the old one or the new one.
func Restore(ctx context.Context, o Options, from string) (Replaced, error) {
	all, err := Backups(o.Path)
	if err != nil {
		return Replaced{}, err
	}

	out := Replaced{Skipped: []string{}}
	if from == dbfile.LastBackup {
		out.From, out.Skipped, err = dbfile.LastGood(ctx, all, applicationID)
		if out.From == "" && err == nil {
			err = &TargetError{Message: fmt.Sprintf("there is no good backup of the ledger (%d are damaged); to begin with an empty one: rouse ledger reset", len(out.Skipped)), Missing: true}
		}
	} else {
		out.From, err = dbfile.Find(o.Path, all, from, "the ledger", "rouse ledger backups")
	}
	if err != nil {
		return Replaced{}, err
	}

	return replace(ctx, o, out, func(path string) error { return dbfile.CopyBackup(ctx, out.From, path, applicationID) })
}

// Reset replaces a ledger that nobody has open, which is kept, by an empty one.
func Reset(ctx context.Context, o Options) (Replaced, error) {
	return replace(ctx, o, Replaced{Skipped: []string{}}, func(string) error { return nil })
}

// replace has make write the new ledger; if that writes nothing, it is an empty one.
func replace(ctx context.Context, o Options, out Replaced, make func(path string) error) (Replaced, error) {
	o = o.withDefaults()
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
		return &TargetError{Message: fmt.Sprintf("the ledger %s is a folder: move it away, and say this again", path)}
	}
	return nil
}

// prepareNew brings a new ledger to the newest schema and records in it what happened.
func prepareNew(ctx context.Context, o Options, from, aside string) error {
	kind, text := "ledger.restored", "from "+from
	if from == "" {
		kind, text = "ledger.reset", "an empty one"
	}
	if _, err := os.Stat(o.Path); err == nil {
		text += "; the one before is in " + aside
	}

	o.Path, o.verified = o.Path+dbfile.NewSuffix, true
	return record(ctx, o, kind, text)
}

// record opens a ledger to write an event about what its owner did with it.
func record(ctx context.Context, o Options, kind, text string) error {
	data, err := json.Marshal(map[string]string{"by": "user", "text": text})
	if err != nil {
		return err
	}

	l, err := Open(ctx, o)
	if err != nil {
		return err
	}
	return errors.Join(l.AppendEvents(ctx, Event{Kind: kind, Data: data}), l.Close())
}

// Accept lets a ledger that nobody has open be used again that was refused because another program
// changed it, if it is sound.
func Accept(ctx context.Context, o Options) error {
	o = o.withDefaults()
	if _, err := os.Stat(o.Path); errors.Is(err, fs.ErrNotExist) {
		return &TargetError{Message: fmt.Sprintf("there is nothing to accept: the ledger %s is missing. Put it back, with its log %s-wal if it has one. %s", o.Path, filepath.Base(o.Path), damageRemedy(o.Path, dbfile.ReasonLost)), Missing: true}
	}

	if err := refuseFolder(o.Path); err != nil {
		return err
	}

	_, _, err := dbfile.Inspect(o.Path, o.Logger)
	var bad *sqlite.CorruptError
	switch {
	case err == nil:
		return &TargetError{Message: "there is nothing to accept: nothing is wrong with the ledger"}
	case !errors.As(err, &bad):
		return err
	}

	if err := sqlite.Verify(ctx, o.Path, applicationID, true); err != nil {
		return fmt.Errorf("it cannot be accepted as it is: %w", refusal(o.Path, err))
	}
	// An opened file gets its checksum when it is closed.
	if err := dbfile.WriteMarker(o.Path, dbfile.Marker{State: dbfile.StateOpen}); err != nil {
		return err
	}

	o.verified = true
	return record(ctx, o, "ledger.accepted", bad.Reason)
}
