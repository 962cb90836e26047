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
	LedgerStampName = "ledger-id" // beside it: the id of the ledger that the home has

	// emptyLedger is up to which size, in bytes, a ledger's file may hold no table: a page of SQLite's.
	emptyLedger = 64 << 10
)

// MissingLedgerError means that the ledger is gone. A new ledger would give the ids of its runs again.
type MissingLedgerError struct {
	Path   string   // of the ledger
	State  string   // "is missing", …
	Left   []string // what is there that says that it had one
	Backup string   // the newest that was found; "" for none
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
	if len(left) == 0 { // the home is new, or its very first start was cut off
		return nil
	}

	return &MissingLedgerError{Path: path, State: state, Left: left, Backup: backup}
}

// ledgerState describes a ledger file without content. It returns "" if there is some.
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

	// A file without its log can be left with nothing but its first page.
	db, err := sqlite.OpenReadOnly(path)
	if err != nil {
		return ""
	}
	defer func() { _ = db.Close() }() // it only read

	var tables int
	if err := db.QueryRowContext(ctx, `select count(*) from sqlite_schema`).Scan(&tables); err == nil && tables == 0 {
		return "holds nothing"
	}
	return ""
}

// leftOfLedger names what a home has only if it had a ledger.
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

// ReadLedgerStamp is the id of the ledger that a home had last; "" when none is recorded.
func ReadLedgerStamp(dir string) string {
	text, err := os.ReadFile(filepath.Join(dir, LedgerStampName))
	if err != nil {
		return "" // one that cannot be read is no reason to refuse a home whose ledger is there
	}
	return strings.TrimSpace(string(text))
}

// PlacementOptions say where in a home what is that comes along to the node that works for an agent.
func PlacementOptions(home, node string, l *ledger.Ledger, log *slog.Logger) placement.Options {
	part := func(name string) string { return filepath.Join(home, name) }
	return placement.Options{Ledger: l, Node: node, Agents: part("agents"), Storage: part("storage"), State: part("replica"), Logger: log}
}
