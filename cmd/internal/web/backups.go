package web

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"path/filepath"

	"rouse/agentdb"
	"rouse/agentdb/pool"
	"rouse/cmd/internal/access"
	"rouse/cmd/internal/api"
	"rouse/internal/ledger"
	"rouse/internal/ledger/inbox"
	"rouse/internal/ledger/store"
)

func (s *databases) backup(r *http.Request, ask api.BackupRequest, progress func(done, of int64)) (out api.Backup, err error) {
	file, err := access.LocalPath(r.Context(), ask.File)
	if err != nil {
		return out, err
	}

	return withDatabase(s, r, func(ctx context.Context, db *agentdb.DB) (api.Backup, error) {
		return db.Backups.Make(ctx, agentdb.BackupSpec{File: file, Overwrite: ask.Force, Progress: progress})
	})
}

func (s *databases) backups(r *http.Request) (any, error) {
	databases, err := s.storage.Databases(r.PathValue("agent"))
	if err != nil {
		return nil, err
	}
	return databases.Recovery.Backups(r.PathValue("agent"))
}

func (s *databases) restoreDatabase(r *http.Request, ask api.RestoreRequest) (any, error) {
	from := string(ask.From) // "last" or the name of a backup, not a path
	if filepath.IsAbs(from) {
		if _, err := access.LocalPath(r.Context(), ask.From); err != nil {
			return nil, err
		}
	}

	agent := r.PathValue("agent")
	return s.replaceDatabase(r, ask.Force, func(ctx context.Context, databases *pool.Pool, idle func(context.Context) error) (api.Replaced, error) {
		if err := s.ledger.Labels.Adopted(ctx, agent); err != nil {
			return api.Replaced{}, err
		}
		return databases.Recovery.Restore(ctx, agent, pool.RestoreSpec{From: from, Force: ask.Force, BeforeReplace: idle})
	})
}

func (s *databases) resetDatabase(r *http.Request, ask api.ResetRequest) (any, error) {
	agent := r.PathValue("agent")
	return s.replaceDatabase(r, ask.Force, func(ctx context.Context, databases *pool.Pool, idle func(context.Context) error) (api.Replaced, error) {
		return databases.Recovery.Reset(ctx, agent, idle)
	})
}

// replaceDatabase replaces an agent's database while no run of the agent is in progress, and
// records the change.
func (s *databases) replaceDatabase(r *http.Request, force bool, replace func(context.Context, *pool.Pool, func(context.Context) error) (api.Replaced, error)) (out api.Replaced, err error) {
	agent := r.PathValue("agent")
	databases, err := s.storage.Databases(agent)
	if err != nil {
		return out, err
	}

	idle := func(ctx context.Context) error { return s.storage.Idle(ctx, agent, force) }
	// Check here for a quick response. The pool checks again when it holds the database, because a
	// run can start in between.
	if err := idle(r.Context()); err != nil {
		return out, err
	}
	if out, err = replace(r.Context(), databases, idle); err != nil {
		return out, err
	}

	kind, text := "database.restored", "from "+out.From
	if out.From == "" {
		kind, text = "database.reset", "an empty one"
	}

	if out.Kept != "" {
		text += "; the one before is in " + out.Kept
	}

	return out, s.recordDatabase(r.Context(), kind, agent, text)
}

func (s *databases) acceptDatabase(r *http.Request) (any, error) {
	return api.Nothing{}, s.accept(r.Context(), r.PathValue("agent"))
}

// accept approves a database that was changed by another program or by runs of another ledger.
func (s *databases) accept(ctx context.Context, agent string) error {
	databases, err := s.storage.Databases(agent)
	if err != nil {
		return err
	}
	if err := s.ledger.Labels.Adopted(ctx, agent); err != nil {
		return err
	}
	if err := databases.Recovery.Accept(ctx, agent); err != nil {
		return err
	}
	if err := s.ledger.Inbox.CloseDatabaseItems(context.WithoutCancel(ctx), agent, inbox.DatabaseAdopt); err != nil {
		return err
	}
	return s.recordDatabase(ctx, "database.accepted", agent, "as it is, with what others wrote")
}

// recordDatabase records a change of a database and reconsiders the runs that it blocked.
func (s *databases) recordDatabase(ctx context.Context, kind, agent, text string) error {
	data, err := json.Marshal(map[string]any{"agent": agent, "by": "user", "text": text})
	if err != nil {
		return err
	}

	// The change is done, so record it even if the client disconnects.
	ctx = context.WithoutCancel(ctx)
	if err := s.ledger.Events.Append(ctx, ledger.Event{Kind: kind, Data: data}); err != nil {
		return err
	}

	s.storage.Reconsider()
	return errors.Join(s.closeDamageItems(ctx, agent), s.ledger.Inbox.CloseDatabaseItems(ctx, agent, ""))
}

// closeDamageItems closes the inbox items about a database that is usable again. Following their
// advice to restore a backup would now lose later writes.
func (s *databases) closeDamageItems(ctx context.Context, agent string) error {
	items, err := s.ledger.Inbox.List(ctx)
	if err != nil {
		return err
	}

	for _, i := range items {
		if i.Kind != inbox.KindInfo || i.Call != inbox.CallDatabase || i.Agent != agent {
			continue
		}
		// Another client may have closed the item, which is the desired result.
		if _, err := s.ledger.Answer(ctx, i.ID, inbox.InfoSeen); err != nil && !errors.Is(err, inbox.ErrClosed) {
			return err
		}
	}

	return nil
}

func (s *databases) ledgerRoutes() []Route {
	home := work(s.responder, "/v1/backups", "Copies the whole home, while it is used.", s.backUpHome)
	home.Local = true // the path is on this machine
	return []Route{
		home,
		get[store.FileState]("/v1/ledger", "How large the history is.", s.answer(s.ofFile(func(r *http.Request) (any, error) { return s.ledger.FileState(r.Context()) }))),
		get[[]api.Backup]("/v1/ledger/backups", "The copies of the history.", s.answer(s.ofFile(func(*http.Request) (any, error) { return s.ledger.Backups() }))),
		work(s.responder, "/v1/ledger/backups", "Copies the history.", s.backUpLedger),
	}
}

// needsFile returns an error if the ledger is not a file.
func (s *databases) needsFile(r *http.Request) error {
	e, err := s.nodes.Engine(r.Context())
	if err == nil && e.Address != "" {
		err = &api.Error{Status: http.StatusConflict, Message: "the ledger is in PostgreSQL (" + e.Address + "), and has no file here: PostgreSQL says how large it is, pg_dump backs it up, and pg_restore brings it back while no node runs"}
	}
	return err
}

// ofFile wraps a handler of requests that need the file of the ledger.
func (s *databases) ofFile(answer func(*http.Request) (any, error)) func(*http.Request) (any, error) {
	return func(r *http.Request) (any, error) {
		if err := s.needsFile(r); err != nil {
			return nil, err
		}
		return answer(r)
	}
}

func (s *databases) backUpLedger(r *http.Request, ask api.BackupRequest, progress func(done, of int64)) (out api.Backup, err error) {
	file, err := access.LocalPath(r.Context(), ask.File)
	if err != nil {
		return out, err
	}
	if err := s.needsFile(r); err != nil {
		return out, err
	}
	return s.ledger.Backup(r.Context(), store.BackupSpec{File: file, Overwrite: ask.Force, Progress: progress})
}

func (s *databases) backUpHome(r *http.Request, ask api.HomeBackupRequest, progress func(done, of int64)) (api.HomeBackup, error) {
	return s.homes.BackUp(r.Context(), ask, progress)
}
