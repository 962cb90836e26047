package web

import (
	"net/http"

	"rouse/agentdb/ledger"
	"rouse/cmd/internal/api"
)

func (s *Server) ledgerRoutes() []Route {
	home := work(s, "/v1/backups", "Copies the whole home, while it is used.", s.backUpHome)
	home.Local = true // it names a place on the machine
	return []Route{
		home,
		get[ledger.FileState]("/v1/ledger", "How large the history is.", s.answer(s.ledgerFile)),
		get[[]api.Backup]("/v1/ledger/backups", "The copies of the history.", s.answer(s.ledgerBackups)),
		work(s, "/v1/ledger/backups", "Copies the history.", s.backUpLedger),
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

func (s *Server) backUpLedger(r *http.Request, ask api.BackupRequest, progress func(done, of int64)) (out api.Backup, err error) {
	file, err := LocalPath(r.Context(), ask.File)
	if err != nil {
		return out, err
	}
	if err := s.needsFile(r); err != nil {
		return out, err
	}
	return s.ledger.Backup(r.Context(), ledger.BackupSpec{File: file, Overwrite: ask.Force, Progress: progress})
}

func (s *Server) backUpHome(r *http.Request, ask api.HomeBackupRequest, progress func(done, of int64)) (api.HomeBackup, error) {
	return s.backend.BackUp(r.Context(), ask, progress)
}
