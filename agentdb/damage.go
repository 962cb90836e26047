package agentdb

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"rouse/internal/storage/dbfile"
	"rouse/internal/storage/sqlite"
)

// maxCheck is the size in bytes up to which Open checks a file that was not closed properly.
// Larger files are checked while they are in use.
const maxCheck = 1 << 30

// Health detects damage of a database file and prevents further use of a damaged file. It also
// turns SQLite errors into messages.
type Health struct {
	path    string
	timeout time.Duration // for queries and writes; used in messages
	log     *slog.Logger
	db      *sqlite.DB
	marker  *dbfile.Keeper
}

// checkInBackground checks a large file while it is in use.
func (h *Health) checkInBackground(ctx context.Context) {
	err := h.db.Check(ctx)
	var bad *sqlite.CorruptError
	switch {
	case err == nil:
		h.marker.SetChecked()
	case errors.As(err, &bad):
		h.log.Error("an agent's database is damaged, and is not used any more", "path", h.path, "error", h.marker.Quarantine(bad))
	case ctx.Err() == nil:
		h.log.Warn("an agent's database could not be checked", "path", h.path, "error", err)
	}
}

// quarantineIfCorrupt quarantines the database if err reports corruption.
func (h *Health) quarantineIfCorrupt(ctx context.Context, err error) error {
	var bad *sqlite.CorruptError
	if err == nil || errors.As(err, &bad) || !corrupt(err) {
		return err
	}
	return h.explain(ctx, err)
}

// CheckFile quarantines the database if its file is lost, and reports whether it did.
func (h *Health) CheckFile(ctx context.Context) bool {
	var lost *sqlite.LostError
	if h.marker.Quarantined() != nil || !errors.As(h.db.CheckFile(ctx), &lost) {
		return false
	}

	err := h.marker.Lost(lost)
	h.log.Error("an agent's database is lost, and is not used any more", "path", h.path, "error", err)
	return true
}

// Fault returns the reason why the database cannot be used any more, or nil.
func (h *Health) Fault() error { return h.marker.Quarantined() }
