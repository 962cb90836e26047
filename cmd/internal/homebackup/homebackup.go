// Package homebackup copies a home while it is in use. It makes backups with all databases at one
// point in time, and opens the configured replication.
package homebackup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"rouse/agentdb/pool"
	"rouse/cmd/internal/access"
	"rouse/cmd/internal/api"
	"rouse/cmd/internal/backup"
	"rouse/cmd/internal/buildinfo"
	"rouse/cmd/internal/cluster"
	"rouse/cmd/internal/config/places"
	"rouse/cmd/internal/config/yaml"
	"rouse/cmd/internal/homedir"
	"rouse/cmd/internal/plan"
	"rouse/cmd/internal/replicate"
	"rouse/cmd/internal/replicate/target"
	"rouse/internal/fspath"
	"rouse/internal/ledger"
	"rouse/internal/ledger/store"
	"rouse/internal/owner"
	"rouse/internal/storage/sqlite"
)

// errNewcomer is returned if a database was created after the databases were listed.
var errNewcomer = errors.New("agents went on making databases while the backup began; say it again")

// Maker makes backups of one home.
type Maker struct {
	Home      string
	Setup     func() *plan.Setup // returns the current configuration
	Ledger    *ledger.Ledger
	Databases *pool.Pool
	Nodes     *cluster.Self
	Stopping  <-chan struct{} // closed when the process stops, which cancels backups
	Logger    *slog.Logger

	making sync.WaitGroup
}

// Wait waits for running backups.
func (m *Maker) Wait() { m.making.Wait() }

// BackUp makes a backup of the whole home. Runs continue meanwhile. The ledger accepts no writes
// only while the snapshots are taken.
func (m *Maker) BackUp(ctx context.Context, ask api.HomeBackupRequest, progress func(done, of int64)) (api.HomeBackup, error) {
	if m.Nodes.Shared() {
		return api.HomeBackup{}, &api.Error{Status: http.StatusConflict, Message: (&homedir.SharedLedgerError{Home: m.Home, Address: m.Nodes.Address}).Error()}
	}
	dest, err := access.LocalPath(ctx, ask.Dest)
	if err == nil {
		err = m.checkDest(dest)
	}
	if err != nil {
		return api.HomeBackup{}, err
	}

	m.making.Add(1)
	defer m.making.Done()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-m.Stopping:
			cancel(errors.New("rouse is stopping, so the backup was given up"))
		case <-ctx.Done():
		}
	}()

	made, err := m.copyHome(ctx, dest, ask, progress)
	if ctx.Err() != nil {
		return made, context.Cause(ctx)
	}
	note := backup.Note{At: time.Now().UTC(), Path: made.Path, Of: made.At.Time, Bytes: made.Bytes}
	if err != nil {
		note, _ = backup.ReadNote(m.Home, backup.LastFile) // keep the last successful backup next to the error
		note.Error, note.FailedAt = err.Error(), time.Now().UTC()
	}
	// The backup is valid even if doctor cannot report it.
	if e := backup.Remember(m.Home, note); e != nil {
		m.Logger.Warn("that the home was backed up could not be kept", "error", e)
	}
	if errors.As(err, new(*backup.TargetError)) {
		err = &api.Error{Status: http.StatusUnprocessableEntity, Message: err.Error()}
	}
	return made, err
}

func (m *Maker) copyHome(ctx context.Context, dest string, ask api.HomeBackupRequest, progress func(done, of int64)) (out api.HomeBackup, err error) {
	newest, err := m.Ledger.NewestRun(ctx)
	if err != nil {
		return out, err
	}

	// A database may be created between listing and snapshot. Then list them again.
	var f *fixed
	for range 5 {
		if f, err = m.fix(ctx); !errors.Is(err, errNewcomer) {
			break
		}
	}
	if err != nil {
		return out, err
	}
	defer f.close()

	o := backup.Options{Dest: dest, Home: m.Home, Databases: f.databases, Unusable: f.unusable, Secrets: ask.Secrets, NoWork: ask.NoFiles, Progress: progress,
		Info: m.backupInfo(f.at, newest)}
	if o.Configs, err = m.Configs(ask.Secrets); err != nil {
		return out, err
	}

	made, err := backup.Write(ctx, o)
	if err != nil {
		return out, err
	}
	out = api.HomeBackup{Path: made.Path, Bytes: made.Bytes, Files: made.Files, At: api.At(made.At), Ledger: made.Ledger, NewestRun: strconv.FormatInt(made.NewestRun, 10),
		Secrets: ask.Secrets, Databases: len(f.databases), Unusable: append([]string{}, f.unusable...), LeftOut: []api.LeftOutPart{}}
	for _, l := range made.LeftOut {
		out.LeftOut = append(out.LeftOut, api.LeftOutPart{Path: l.Path, Why: l.Why})
	}
	return out, nil
}

// backupInfo returns the description of a copy of the home.
func (m *Maker) backupInfo(at time.Time, newest int64) backup.Info {
	info := backup.Info{Rouse: buildinfo.Version(), At: at.UTC().Truncate(time.Millisecond), Home: m.Home, Ledger: m.Ledger.ID(), Schema: store.Schema(), NewestRun: newest}
	if files := m.Setup().Config.Files; len(files) > 0 {
		info.Config = files[0]
	}
	return info
}

// Configs returns the current configuration files. It redacts secrets unless secrets is set.
func (m *Maker) Configs(secrets bool) (out []backup.Config, err error) {
	now := m.Setup()
	for _, file := range now.Config.Files {
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("the configuration cannot be copied: %w", err)
		}
		c := backup.Config{Path: file, Content: content}
		if !secrets {
			c.Content, _ = yaml.Mask(now.Config, file, content, now.Plan.Runner.Secrets)
			c.Redacted = !bytes.Equal(c.Content, content)
		}
		out = append(out, c)
	}
	return out, nil
}

// checkDest returns an error if other users can write to dest, or if dest is inside the home.
func (m *Maker) checkDest(dest string) error {
	bad := func(format string, args ...any) error {
		return &api.Error{Status: http.StatusUnprocessableEntity, Message: fmt.Sprintf(format, args...), Usage: true}
	}
	if !filepath.IsAbs(dest) {
		return bad("%q is not an absolute path; name a folder for backups, or a file that ends in .tar.zst or .tar.gz", dest)
	}

	folder := dest
	if backup.Archive(dest) {
		folder = filepath.Dir(dest)
	}
	real := fspath.Real(folder)
	if fspath.Within(real, fspath.Real(m.Home)) {
		return bad("%s lies in the home %s, which is what is backed up; name a place on another disk", dest, m.Home)
	}
	if who := places.WriterAround(m.Setup().Config, real); who != "" {
		return bad("no backup is kept in %s, because %s, and a restore would believe what is there; name a folder that is yours alone", dest, who)
	}
	return nil
}

// fixed holds snapshots of all databases at one point in time.
type fixed struct {
	at        time.Time
	databases []backup.Database
	unusable  []string
	releases  []func()
}

func (f *fixed) close() {
	for _, release := range slices.Backward(f.releases) {
		release()
	}
}

// fix takes snapshots of all databases at one point in time. It returns errNewcomer if a database
// was created meanwhile.
func (m *Maker) fix(ctx context.Context) (_ *fixed, err error) {
	f := &fixed{}
	defer func() {
		if err != nil {
			f.close()
		}
	}()

	known, err := m.databaseFiles()
	if err != nil {
		return nil, err
	}
	for _, rel := range known {
		if err := m.prepare(ctx, f, rel); err != nil {
			return nil, err
		}
	}

	s, release, err := m.Ledger.Snapshot(ctx, func(ctx context.Context) error {
		f.at = time.Now()
		for _, db := range f.databases {
			if err := db.Snapshot.Take(ctx); err != nil {
				return err
			}
		}
		now, err := m.databaseFiles()
		if err == nil && !slices.Equal(now, known) {
			err = errNewcomer
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	f.databases = append([]backup.Database{{Path: homedir.LedgerName, Snapshot: s}}, f.databases...)
	f.releases = append(f.releases, release, func() { m.closeSnapshot(s) })
	return f, nil
}

func (m *Maker) closeSnapshot(s *sqlite.Snapshot) {
	if err := s.Close(); err != nil {
		m.Logger.Warn("a database that was copied could not be let go", "path", s.Path(), "error", err)
	}
}

// databaseFiles returns the paths of the databases of agents and skills, relative to the home.
func (m *Maker) databaseFiles() (out []string, err error) {
	for _, pattern := range []string{"agents/*/db.sqlite", "storage/*/*.db"} {
		found, err := filepath.Glob(filepath.Join(m.Home, filepath.FromSlash(pattern)))
		if err != nil {
			return nil, err
		}
		for _, path := range found {
			rel, err := filepath.Rel(m.Home, path)
			if err != nil {
				return nil, err
			}
			if info, err := os.Lstat(path); err == nil && info.Mode().IsRegular() && info.Size() > 0 { // otherwise it is being created
				out = append(out, filepath.ToSlash(rel))
			}
		}
	}
	return out, nil
}

// prepare opens the snapshot of a database and keeps the database from being replaced. An unusable
// database is copied as it is.
func (m *Maker) prepare(ctx context.Context, f *fixed, rel string) error {
	var s *sqlite.Snapshot
	var err error
	if strings.HasPrefix(rel, "agents/") {
		db, release, e := m.Databases.Get(ctx, path.Base(path.Dir(rel)))
		if err = e; err == nil {
			f.releases = append(f.releases, release)
			s, err = db.Backups.Snapshot(ctx)
		}
	} else {
		s, err = sqlite.OpenSnapshot(ctx, filepath.Join(m.Home, filepath.FromSlash(rel)))
	}

	var quarantined *pool.QuarantinedError
	switch {
	case err == nil:
		f.databases = append(f.databases, backup.Database{Path: rel, Snapshot: s})
		f.releases = append(f.releases, func() { m.closeSnapshot(s) })
	case errors.As(err, &quarantined), sqlite.Corrupt(err):
		m.Logger.Warn("a database cannot be used, and is backed up as it is", "path", rel, "error", err)
		f.unusable = append(f.unusable, rel)
	default:
		return fmt.Errorf("%s cannot be backed up: %w", rel, err)
	}
	return nil
}

// Replicator returns a replicator with the configured target. The replicator follows the home's
// databases from now on.
func (m *Maker) Replicator(ctx context.Context) (*replicate.Replicator, error) {
	wanted := m.Setup().Config.Replicate
	t, err := target.Parse(wanted.To)
	if err != nil {
		return nil, fmt.Errorf("replicate.to %w", err)
	}
	store, err := t.Open(target.Keys{Access: wanted.AccessKey, Secret: wanted.SecretKey})
	if err != nil {
		return nil, err
	}
	o := replicate.Options{Home: m.Home, Ledger: m.Ledger, Databases: m.Databases, Store: store, To: t.String(), Keep: time.Duration(wanted.Keep), Logger: m.Logger,
		Configs: func() ([]backup.Config, error) { return m.Configs(false) },
		Info: func(ctx context.Context) (backup.Info, error) {
			newest, err := m.Ledger.NewestRun(ctx)
			return m.backupInfo(time.Now(), newest), err
		}}
	if t.Folder != "" {
		o.Allowed = func() error { return m.checkReplicaFolder(t.Folder) }
	}
	return replicate.New(ctx, o)
}

// checkReplicaFolder returns an error if the folder does not exist or other users can write to it.
// A restore would trust its content.
func (m *Maker) checkReplicaFolder(folder string) error {
	var bad *api.Error
	if err := m.checkDest(folder); errors.As(err, &bad) {
		return errors.New(bad.Message)
	}
	if why := owner.WritableByOthers(folder); why != "" {
		return fmt.Errorf("no copies are kept in %s, because it %s, and a restore would believe what is there; %s", folder, why, owner.Chmod(folder))
	}
	return nil
}
