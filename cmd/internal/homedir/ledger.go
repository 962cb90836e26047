package homedir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"rouse/agentdb/placement"
	"rouse/internal/ledger"
	"rouse/internal/ledger/store"
	"rouse/internal/storage/sqlite"
	"rouse/internal/text"
)

const (
	LedgerName      = "ledger.db"
	LedgerStampName = "ledger-id" // next to the ledger: the ID of the home's ledger

	// emptyLedger is the maximum size of a ledger file without tables, in bytes. It is the largest
	// page size of SQLite.
	emptyLedger = 64 << 10
)

// MissingLedgerError is returned if the ledger of a home is missing. A new ledger would reuse run
// IDs.
type MissingLedgerError struct {
	Path   string   // path of the ledger
	State  string   // for example "is missing"
	Left   []string // traces of the ledger in the home
	Backup string   // newest backup found; may be empty
}

func (e *MissingLedgerError) Error() string {
	from := "from your backup of the home: rouse ledger restore FILE"
	if e.Backup != "" {
		from = "from the newest backup, " + e.Backup + ": rouse ledger restore last"
	}
	return fmt.Sprintf("the ledger %s %s, and this home had one: there is %s. Nothing was started, and nothing was changed. Put the ledger back, with its %s-wal if it has one; or go on %s. To begin with an empty one instead: rouse ledger reset; then each agent's database that holds runs of the old one is asked about in the inbox",
		e.Path, e.State, text.List(e.Left, 10), LedgerName, from)
}

// FindLedger returns a *MissingLedgerError if a home has lost its ledger.
func FindLedger(ctx context.Context, dir string) error {
	path := filepath.Join(dir, LedgerName)
	state := ledgerState(ctx, path)
	if state == "" {
		return nil
	}

	left, backup := leftOfLedger(dir), ""
	if all, err := store.Backups(path); err == nil && len(all) > 0 {
		left, backup = append(left, "backups of it"), all[0].Path
	}
	if len(left) == 0 { // the home is new, or its first start was interrupted
		return nil
	}

	return &MissingLedgerError{Path: path, State: state, Left: left, Backup: backup}
}

// ledgerState describes a missing or empty ledger file. It returns an empty string if the file has
// content.
func ledgerState(ctx context.Context, path string) string {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "is missing"
	case err == nil && info.IsDir():
		return "is a folder, which has to be moved away first"
	case err != nil || info.Size() > emptyLedger:
		return ""
	case info.Size() == 0:
		return "is empty"
	}

	// A ledger file without its WAL may contain only its first page.
	db, err := sqlite.OpenReadOnly(path)
	if err != nil {
		return ""
	}
	defer func() { _ = db.Close() }() // opened read-only

	var tables int
	if err := db.QueryRowContext(ctx, `select count(*) from sqlite_schema`).Scan(&tables); err == nil && tables == 0 {
		return "holds nothing"
	}
	return ""
}

// leftOfLedger returns descriptions of files that a home has only if it had a ledger.
func leftOfLedger(dir string) (left []string) {
	if id := ReadLedgerStamp(dir); id != "" {
		left = append(left, "the id of the one it had ("+filepath.Join(dir, LedgerStampName)+")")
	}

	for _, kind := range []struct{ pattern, one string }{
		{"agents/*/db.sqlite", "agent's database"}, {"recordings/*.jsonl", "recording"}, {"blobs/*/*", "large value of the record"}, {LedgerName + "-wal", "log of it"},
	} {
		found, err := filepath.Glob(filepath.Join(dir, filepath.FromSlash(kind.pattern)))
		if err == nil && len(found) > 0 {
			left = append(left, fmt.Sprintf("%s (%s)", text.Plural(len(found), kind.one), found[0]))
		}
	}

	return left
}

// ReadLedgerStamp returns the ID of the last ledger of a home, or an empty string if no ID is
// recorded.
func ReadLedgerStamp(dir string) string {
	text, err := os.ReadFile(filepath.Join(dir, LedgerStampName))
	if err != nil {
		return "" // an unreadable stamp is no reason to refuse a home with a ledger
	}
	return strings.TrimSpace(string(text))
}

// PlacementOptions returns the paths in a home that move to the node that runs an agent.
func PlacementOptions(home, node string, l *ledger.Ledger, log *slog.Logger) placement.Options {
	part := func(name string) string { return filepath.Join(home, name) }
	return placement.Options{Ledger: l, Node: node, Agents: part("agents"), Storage: part("storage"), State: part("replica"), Logger: log}
}
