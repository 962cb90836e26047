package web

import (
	"net/http"
	"sync/atomic"

	"rouse/agentdb/ledger"
	"rouse/cmd/internal/api"
)

func (s *server) ledgerRoutes(mux *http.ServeMux) {
	mux.Handle("GET /v1/ledger", s.answer(func(r *http.Request) (any, error) { return s.ledger.FileState(r.Context()) }))
	mux.Handle("GET /v1/ledger/backups", s.answer(func(*http.Request) (any, error) { return s.ledger.Backups() }))
	mux.HandleFunc("POST /v1/ledger/backups", s.backUpLedger)
}

// backUpLedger copies the ledger, and answers with JSON lines that report its progress.
func (s *server) backUpLedger(w http.ResponseWriter, r *http.Request) {
	var ask api.BackupRequest
	if err := read(r, &ask); err != nil {
		s.fail(w, r, err)
		return
	}

	ctx := r.Context()
	var progress atomic.Pointer[api.WorkLine[api.Backup]]
	sendWork(s, w, r, &progress, func() (api.Backup, error) {
		return s.ledger.Backup(ctx, ledger.BackupSpec{File: ask.File, Overwrite: ask.Force, Progress: func(done, of int64) {
			progress.Store(&api.WorkLine[api.Backup]{Done: done, Of: of})
		}})
	})
}
