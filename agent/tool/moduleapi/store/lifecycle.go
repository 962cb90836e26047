package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"rouse/internal/storage/sqlite"
)

// Lifecycle is what the hooks of a skill were told for an agent (OSL-06). It lies beside what the skill stores there, where its module
// cannot write it.
type Lifecycle struct {
	Version string // of the skill, of which onInstall or onUpgrade was told; "": none
	Enabled bool   // onEnable was called, and onDisable not since
	Config  string // the hash of the settings of which onConfigure was told; "": none
}

// Lifecycle is what the hooks were told, with no right to call any.
func (s *Store) Lifecycle(ctx context.Context) (Lifecycle, error) {
	var l Lifecycle
	db, err := s.look(ctx)
	if err == nil && db != nil {
		err = db.Read().QueryRowContext(ctx, `select version, enabled, config from lifecycle`).Scan(&l.Version, &l.Enabled, &l.Config)
	}
	return l, lifecycleError(err)
}

// ClaimHooks has a run be the one that calls hooks, until it says that it has called them all, or is over: over tells that of another
// run of this ledger. by is the run that calls them now, where that is another one.
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

// NoteHooks keeps what the hooks were told. It is for the run that claimed them, which lets them go with done.
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

// lifecycleError says what the error of a database hindered. Where nothing was noted yet there is none.
func lifecycleError(err error) error {
	if err == nil || errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	return fmt.Errorf("what the hooks of the skill were told cannot be read or kept: %w", err)
}
