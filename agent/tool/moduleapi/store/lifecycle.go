package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"rouse/internal/storage/sqlite"
)

// Lifecycle records which hooks of a skill were called for an agent. It is stored in a table that
// the module cannot write.
type Lifecycle struct {
	Version string // skill version of the last onInstall or onUpgrade, or ""
	Enabled bool   // onEnable was called, and onDisable was not called since
	Config  string // hash of the settings of the last onConfigure, or ""
}

// Lifecycle returns the recorded hook calls without claiming the hooks.
func (s *Store) Lifecycle(ctx context.Context) (Lifecycle, error) {
	var l Lifecycle
	db, err := s.look(ctx)
	if err == nil && db != nil {
		err = db.Read().QueryRowContext(ctx, `select version, enabled, config from lifecycle`).Scan(&l.Version, &l.Enabled, &l.Config)
	}
	return l, lifecycleError(err)
}

// ClaimHooks gives a run the exclusive right to call hooks, until NoteHooks releases it or the run
// is over. over reports whether another run of this ledger is over. If another run holds the right,
// by is that run, otherwise 0.
func (s *Store) ClaimHooks(ctx context.Context, run int64, over func(run int64) (bool, error)) (l Lifecycle, by int64, err error) {
	db, err := s.open(ctx)
	if err != nil {
		return l, 0, lifecycleError(err)
	}

	err = db.Do(ctx, func(tx *sqlite.Tx) error {
		if _, err := tx.Exec(`insert into lifecycle (id) values (1) on conflict do nothing`); err != nil {
			return err
		}
		var ledger string
		if err := tx.QueryRow(`select version, enabled, config, ledger, run from lifecycle`).Scan(&l.Version, &l.Enabled, &l.Config, &ledger, &by); err != nil {
			return err
		}

		if ledger == s.epoch && by != 0 && by != run {
			if ended, err := over(by); err != nil || !ended {
				return err
			}
		}
		by = 0
		_, err := tx.Exec(`update lifecycle set ledger = ?, run = ?`, s.epoch, run)
		return err
	})
	return l, by, lifecycleError(err)
}

// NoteHooks records the hook calls of the run that claimed the hooks. If done is set, it releases
// the claim. It returns an error if the run does not hold the claim.
func (s *Store) NoteHooks(ctx context.Context, run int64, l Lifecycle, done bool) error {
	db, err := s.open(ctx)
	if err != nil {
		return lifecycleError(err)
	}

	return lifecycleError(db.Do(ctx, func(tx *sqlite.Tx) error {
		next := run
		if done {
			next = 0
		}
		res, err := tx.Exec(`update lifecycle set version = ?, enabled = ?, config = ?, run = ? where ledger = ? and run = ?`, l.Version, l.Enabled, l.Config, next, s.epoch, run)
		if err != nil {
			return err
		}
		if n, err := res.RowsAffected(); err != nil || n == 0 {
			return errors.Join(err, fmt.Errorf("run %d does not call them any more", run))
		}
		return nil
	}))
}

// lifecycleError adds context to a database error. It returns nil if there is no record yet.
func lifecycleError(err error) error {
	if err == nil || errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	return fmt.Errorf("what the hooks of the skill were told cannot be read or kept: %w", err)
}
