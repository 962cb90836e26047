package web

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"sync/atomic"

	"rouse/agentdb"
	"rouse/agentdb/ledger"
	"rouse/cmd/internal/api"
)

// backup copies an agent's database and answers with JSON lines.
func (s *server) backup(w http.ResponseWriter, r *http.Request) {
	var ask api.BackupRequest
	if err := read(r, &ask); err != nil {
		s.fail(w, r, err)
		return
	}

	db, release, err := s.behind.Databases.Database(r.Context(), r.PathValue("agent"))
	if err != nil {
		s.fail(w, r, err)
		return
	}
	defer release()

	ctx := r.Context()
	var progress atomic.Pointer[api.WorkLine[api.Backup]]
	sendWork(s, w, r, &progress, func() (api.Backup, error) {
		return db.Backup(ctx, agentdb.BackupSpec{File: ask.File, Overwrite: ask.Force, Progress: func(done, of int64) {
			progress.Store(&api.WorkLine[api.Backup]{Done: done, Of: of})
		}})
	})
}

func (s *server) backups(r *http.Request) (any, error) {
	pool, err := s.behind.Databases.Databases(r.PathValue("agent"))
	if err != nil {
		return nil, err
	}
	return pool.Backups(r.PathValue("agent"))
}

func (s *server) restoreDatabase(r *http.Request) (any, error) {
	var ask api.RestoreRequest
	if err := read(r, &ask); err != nil {
		return nil, err
	}

	agent := r.PathValue("agent")
	return s.replaceDatabase(r, ask.Force, func(ctx context.Context, pool *agentdb.Pool, idle func(context.Context) error) (api.Replaced, error) {
		return pool.Restore(ctx, agent, agentdb.RestoreSpec{From: ask.From, Force: ask.Force, BeforeReplace: idle})
	})
}

func (s *server) resetDatabase(r *http.Request) (any, error) {
	var ask api.ResetRequest
	if err := read(r, &ask); err != nil {
		return nil, err
	}

	agent := r.PathValue("agent")
	return s.replaceDatabase(r, ask.Force, func(ctx context.Context, pool *agentdb.Pool, idle func(context.Context) error) (api.Replaced, error) {
		return pool.Reset(ctx, agent, idle)
	})
}

// replaceDatabase puts another database into the place of an agent's while no run of the agent is
// half-way, and records it.
func (s *server) replaceDatabase(r *http.Request, force bool, replace func(context.Context, *agentdb.Pool, func(context.Context) error) (api.Replaced, error)) (out api.Replaced, err error) {
	agent := r.PathValue("agent")
	pool, err := s.behind.Databases.Databases(agent)
	if err != nil {
		return out, err
	}

	idle := func(ctx context.Context) error { return s.behind.Databases.Idle(ctx, agent, force) }
	if err := idle(r.Context()); err != nil {
		return out, err
	}
	if out, err = replace(r.Context(), pool, idle); err != nil {
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

func (s *server) acceptDatabase(r *http.Request) (any, error) {
	agent := r.PathValue("agent")
	pool, err := s.behind.Databases.Databases(agent)
	if err != nil {
		return nil, err
	}
	if err := pool.Accept(r.Context(), agent); err != nil {
		return nil, err
	}
	return struct{}{}, s.recordDatabase(r.Context(), "database.accepted", agent, "as it was changed by another program")
}

// recordDatabase tells the ledger, and runs that were held that they may go on.
func (s *server) recordDatabase(ctx context.Context, kind, agent, text string) error {
	data, err := json.Marshal(map[string]any{"agent": agent, "by": "user", "text": text})
	if err != nil {
		return err
	}

	ctx = context.WithoutCancel(ctx)
	if err := s.ledger.AppendEvents(ctx, ledger.Event{Kind: kind, Data: data}); err != nil {
		return err
	}

	s.behind.Databases.Reconsider()
	return s.closeDamageItems(ctx, agent)
}

// closeDamageItems closes what the inbox says of a database that can be used again: who followed
// its advice now, to restore a backup, would lose what was written since.
func (s *server) closeDamageItems(ctx context.Context, agent string) error {
	items, err := s.ledger.Inbox(ctx)
	if err != nil {
		return err
	}

	for _, i := range items {
		if i.Kind != ledger.KindInfo || i.Call != ledger.CallDatabase || i.Agent != agent {
			continue
		}
		if _, err := s.ledger.Answer(ctx, i.ID, ledger.InfoSeen); err != nil && !errors.Is(err, ledger.ErrClosed) {
			return err
		}
	}

	return nil
}
