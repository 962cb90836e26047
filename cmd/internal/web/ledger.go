package web

import (
	"net/http"
	"sync/atomic"

	"rouse/agentdb/ledger"
	"rouse/cmd/internal/api"
)

func (s *server) ledgerRoutes() []Route {
	home := work[api.HomeBackupRequest, api.HomeBackup]("/v1/backups", "Copies the whole home, while it is used.", s.backUpHome)
	home.Local = true // it names a place on the machine
	return []Route{
		home,
		get[ledger.FileState]("/v1/ledger", "How large the history is.", s.answer(s.ledgerFile)),
		get[[]api.Backup]("/v1/ledger/backups", "The copies of the history.", s.answer(s.ledgerBackups)),
		work[api.BackupRequest, api.Backup]("/v1/ledger/backups", "Copies the history.", s.backUpLedger),
	}
}

// needsFile refuses what is asked of the file of a ledger that has none.
func (s *server) needsFile(r *http.Request) error {
	e, err := s.backend.Host.Engine(r.Context())
	if err == nil && e.Address != "" {
		err = &api.Error{Status: http.StatusConflict, Message: "the ledger is in PostgreSQL (" + e.Address + "), and has no file here: PostgreSQL says how large it is, pg_dump backs it up, and pg_restore brings it back while no node runs"}
	}
	return err
}

func (s *server) ledgerFile(r *http.Request) (any, error) {
	if err := s.needsFile(r); err != nil {
		return nil, err
	}
	return s.ledger.FileState(r.Context())
}

func (s *server) ledgerBackups(r *http.Request) (any, error) {
	if err := s.needsFile(r); err != nil {
		return nil, err
	}
	return s.ledger.Backups()
}

// backUpLedger copies the ledger, and answers with JSON lines that report its progress.
func (s *server) backUpLedger(w http.ResponseWriter, r *http.Request) {
	var ask api.BackupRequest
	if err := read(r, &ask); err != nil {
		s.fail(w, r, err)
		return
	}
	file, err := LocalPath(r.Context(), ask.File)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	if err := s.needsFile(r); err != nil {
		s.fail(w, r, err)
		return
	}

	ctx := r.Context()
	var progress atomic.Pointer[api.WorkLine[api.Backup]]
	sendWork(s, w, r, &progress, func() (api.Backup, error) {
		return s.ledger.Backup(ctx, ledger.BackupSpec{File: file, Overwrite: ask.Force, Progress: func(done, of int64) {
			progress.Store(&api.WorkLine[api.Backup]{Done: done, Of: of})
		}})
	})
}

// backUpHome copies the home, and answers with JSON lines that report its progress.
func (s *server) backUpHome(w http.ResponseWriter, r *http.Request) {
	var ask api.HomeBackupRequest
	if err := read(r, &ask); err != nil {
		s.fail(w, r, err)
		return
	}

	ctx := r.Context()
	var progress atomic.Pointer[api.WorkLine[api.HomeBackup]]
	sendWork(s, w, r, &progress, func() (api.HomeBackup, error) {
		return s.backend.Host.BackUp(ctx, ask, func(done, of int64) {
			progress.Store(&api.WorkLine[api.HomeBackup]{Done: done, Of: of})
		})
	})
}
