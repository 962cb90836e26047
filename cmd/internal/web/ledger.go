package web

import (
	"net/http"

	"rouse/agentdb/ledger"
	"rouse/cmd/internal/api"
)

func (s *Server) ledgerRoutes() []Route {
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
func (s *Server) needsFile(r *http.Request) error {
	e, err := s.backend.Engine(r.Context())
	if err == nil && e.Address != "" {
		err = &api.Error{Status: http.StatusConflict, Message: "the ledger is in PostgreSQL (" + e.Address + "), and has no file here: PostgreSQL says how large it is, pg_dump backs it up, and pg_restore brings it back while no node runs"}
	}
	return err
}

func (s *Server) ledgerFile(r *http.Request) (any, error) {
	if err := s.needsFile(r); err != nil {
		return nil, err
	}
	return s.ledger.FileState(r.Context())
}

func (s *Server) ledgerBackups(r *http.Request) (any, error) {
	if err := s.needsFile(r); err != nil {
		return nil, err
	}
	return s.ledger.Backups()
}

// backUpLedger copies the ledger, and answers with JSON lines that report its progress.
func (s *Server) backUpLedger(w http.ResponseWriter, r *http.Request) {
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
	sendWork(s, w, r, func(progress func(done, of int64)) (api.Backup, error) {
		return s.ledger.Backup(ctx, ledger.BackupSpec{File: file, Overwrite: ask.Force, Progress: progress})
	})
}

// backUpHome copies the home, and answers with JSON lines that report its progress.
func (s *Server) backUpHome(w http.ResponseWriter, r *http.Request) {
	var ask api.HomeBackupRequest
	if err := read(r, &ask); err != nil {
		s.fail(w, r, err)
		return
	}

	ctx := r.Context()
	sendWork(s, w, r, func(progress func(done, of int64)) (api.HomeBackup, error) {
		return s.backend.BackUp(ctx, ask, progress)
	})
}
