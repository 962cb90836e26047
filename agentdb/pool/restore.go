package pool

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"rouse/agentdb"
	"rouse/agentdb/dberr"
	"rouse/internal/storage/dbfile"
	"rouse/internal/storage/sqlite"
)

// RestoreSpec selects the backup to restore.
type RestoreSpec struct {
	// From is "last", the name of a backup or its beginning, or the path of a file.
	From string
	// Force allows the database of another agent.
	Force bool
	// BeforeReplace is called once the database is unused. If it returns an error, the restore
	// stops. Optional.
	BeforeReplace func(context.Context) error
}

// Replaced is the result of replacing a database.
type Replaced struct {
	Agent string `json:"agent"`
	From  string `json:"from"` // path of the backup; "" for an empty database
	Kept  string `json:"kept"` // folder with the previous database; "" if there was no previous database
	// Newer backups that "last" skipped because they are damaged.
	Skipped []string `json:"passed"`
}

// Recovery restores, resets or accepts the databases of a pool for their owner.
type Recovery struct{ pool *Pool }

// Backups returns the known backups of an agent's database, the newest first, including replaced
// databases.
func (r *Recovery) Backups(agent string) ([]agentdb.Backup, error) {
	if err := checkAgent(agent); err != nil {
		return nil, err
	}

	return dbfile.BackupsAndReplaced(r.pool.path(agent))
}

// Restore replaces an agent's database by a copy of a backup and keeps the replaced one. It waits
// until the database is unused. After a crash, either the old or the new database is in place.
// The new database's changelog records the restore.
func (r *Recovery) Restore(ctx context.Context, agent string, spec RestoreSpec) (Replaced, error) {
	from, passed, err := r.findBackup(ctx, agent, spec.From)
	if err != nil {
		return Replaced{}, err
	}

	return r.replace(ctx, Replaced{Agent: agent, From: from, Skipped: passed}, spec.BeforeReplace, func(path string) error {
		if err := dbfile.CopyBackup(ctx, from, path, agentdb.ApplicationID); err != nil {
			return agentdb.RefusedTarget("from", err)
		}

		of, err := ownerOf(path)
		if err != nil {
			return err
		}
		if of != "" && !strings.EqualFold(of, agent) && !spec.Force {
			return &dberr.Error{Kind: dberr.KindInvalid, Field: "from", Message: fmt.Sprintf("%s is a database of the agent %s, not of %s, which was left as it is; to take it all the same, say --force", from, of, agent)}
		}

		return nil
	})
}

// Reset replaces an agent's database by an empty one and keeps the replaced one. idle is called
// like RestoreSpec.BeforeReplace.
func (r *Recovery) Reset(ctx context.Context, agent string, idle func(context.Context) error) (Replaced, error) {
	if err := checkAgent(agent); err != nil {
		return Replaced{}, err
	}
	return r.replace(ctx, Replaced{Agent: agent, Skipped: []string{}}, idle, func(string) error { return nil })
}

// replace calls make to write the new database. If make writes no file, the new database is
// empty.
func (r *Recovery) replace(ctx context.Context, out Replaced, idle func(context.Context) error, make func(path string) error) (Replaced, error) {
	if err := r.stay(ctx, out.Agent); err != nil {
		return out, err
	}
	out, err := r.replaceHere(ctx, out, idle, make)
	if err != nil {
		return out, err
	}
	return out, r.shipReplaced(ctx, out.Agent)
}

func (r *Recovery) replaceHere(ctx context.Context, out Replaced, idle func(context.Context) error, make func(path string) error) (Replaced, error) {
	agent := out.Agent
	end, err := r.pool.acquireExclusive(ctx, agent)
	if err != nil {
		return out, err
	}
	defer end()

	if idle != nil {
		if err := idle(ctx); err != nil {
			return out, err
		}
	}

	path := r.pool.path(agent)
	// Complete an interrupted replacement first. The current file may be damaged, which is often
	// the reason for the replacement.
	if _, _, err := dbfile.Inspect(path, r.pool.o.Logger); err != nil && !errors.As(err, new(*sqlite.CorruptError)) {
		return out, err
	}
	if err := dbfile.DiscardNew(path); err != nil {
		return out, err
	}

	// Complete the new file, with the newest schema and its checksum, before touching the old
	// one.
	aside := dbfile.AsidePath()
	if err := make(path + dbfile.NewSuffix); err != nil {
		return out, errors.Join(err, dbfile.DiscardNew(path))
	}
	if err := r.prepareNew(ctx, path+dbfile.NewSuffix, agent, out.From, aside); err != nil {
		return out, errors.Join(fmt.Errorf("the database was left as it is: %w", err), dbfile.DiscardNew(path))
	}
	if err := dbfile.Replace(path, aside); err != nil {
		return out, err
	}

	kept := filepath.Join(filepath.Dir(path), aside)
	if _, err := os.Stat(kept); err == nil {
		out.Kept = kept
	}

	return out, putFilesAside(path, kept)
}

// prepareNew migrates a new database to the newest schema and records the replacement in it.
func (r *Recovery) prepareNew(ctx context.Context, path, agent, from, aside string) (err error) {
	db, err := agentdb.Open(ctx, agentdb.Options{Path: path, Agent: agent, Logger: r.pool.o.Logger, Ledger: r.pool.o.Ledger, Scratch: true, Adopt: true})
	if err != nil {
		return err
	}

	note := fmt.Sprintf("-- the owner restored this database from %s; the one before is in %s", from, aside)
	if from == "" {
		note = "-- the owner began with this empty database; the one before is in " + aside
	}

	err = db.Backups.RecordOwnerAction(ctx, agent, note)
	return errors.Join(err, db.Close())
}

// putFilesAside moves the migration files to the replaced database, which they describe. Opening
// the new database writes its own files.
func putFilesAside(path, kept string) error {
	var errs []error
	for _, name := range []string{"migrations", "schema.sql"} {
		old := filepath.Join(filepath.Dir(path), name)
		if _, err := os.Stat(old); err != nil {
			continue
		}

		err := os.MkdirAll(kept, 0o700)
		if err == nil {
			err = os.Rename(old, filepath.Join(kept, name))
		}

		errs = append(errs, err)
	}

	return errors.Join(errs...)
}

// findBackup returns the path of the selected backup, and the damaged backups that "last"
// skipped.
func (r *Recovery) findBackup(ctx context.Context, agent, from string) (path string, passed []string, err error) {
	all, err := r.Backups(agent)
	if err != nil {
		return "", nil, err
	}

	if from != dbfile.LastBackup {
		path, err = dbfile.Find(r.pool.path(agent), all, from, agent, "rouse db "+agent+" backups")
		return path, []string{}, agentdb.RefusedTarget("from", err)
	}

	path, passed, err = dbfile.LastGood(ctx, all, agentdb.ApplicationID)
	if path == "" && err == nil {
		err = &dberr.Error{Kind: dberr.KindNotFound, Field: "from", Message: fmt.Sprintf("there is no good backup of the database of %s (%d are damaged); to begin with an empty one: rouse db %s reset", agent, len(passed), agent)}
	}

	return path, passed, err
}

// Accept allows the use of an intact database that was rejected. Either another program changed
// it, or the ledger does not know its runs. The changelog records the acceptance, because the
// other program's changes are not in it.
func (r *Recovery) Accept(ctx context.Context, agent string) error {
	if err := checkAgent(agent); err != nil {
		return err
	}
	if err := r.stay(ctx, agent); err != nil {
		return err
	}
	if err := r.acceptHere(ctx, agent); err != nil {
		return err
	}
	return r.shipReplaced(ctx, agent)
}

func (r *Recovery) acceptHere(ctx context.Context, agent string) error {
	end, err := r.pool.acquireExclusive(ctx, agent)
	if err != nil {
		return err
	}
	defer end()

	path := r.pool.path(agent)
	_, _, err = dbfile.Inspect(path, r.pool.o.Logger)
	if err == nil {
		return r.adopt(ctx, agent)
	}

	var bad *sqlite.CorruptError
	if !errors.As(err, &bad) {
		return err
	}
	if err := sqlite.Verify(ctx, path, agentdb.ApplicationID, true); err != nil {
		return fmt.Errorf("it cannot be accepted as it is: %w", r.pool.describe(agent, err))
	}
	// An open file gets its checksum when it is closed.
	if err := dbfile.WriteMarker(path, dbfile.Marker{State: dbfile.StateOpen}); err != nil {
		return err
	}

	db, err := r.openAdopting(ctx, agent)
	if err != nil {
		return r.pool.describe(agent, err)
	}

	err = db.Backups.RecordOwnerAction(ctx, agent, "-- the owner accepted this database as it is: "+bad.Reason)
	return errors.Join(err, db.Close())
}

// ownerOf returns the agent that a database file belongs to, or "" if it has no owner yet.
func ownerOf(path string) (agent string, err error) {
	db, err := sqlite.OpenReadOnly(path)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, db.Close()) }()

	err = db.QueryRow(`select coalesce(max(agent), '') from _owner`).Scan(&agent)
	return agent, err
}
