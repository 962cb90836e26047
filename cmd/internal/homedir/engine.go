package homedir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"rouse/cmd/internal/config"
	"rouse/internal/atomicfile"
	"rouse/internal/storage/sqlite"
)

const (
	// engineName is the name of the file that marks a home with a ledger in PostgreSQL. It contains
	// the address of the database without a password, and the name of the home's node.
	engineName = "engine"
)

// SharedLedgerError is returned for an operation that needs a ledger file if the ledger is in
// PostgreSQL.
type SharedLedgerError struct{ Home, Address string }

func (e *SharedLedgerError) Error() string {
	return fmt.Sprintf("the ledger of the home %s is in PostgreSQL (%s), and there is no file of it here: back it up with pg_dump, bring it back with pg_restore while no node runs, and have its size from PostgreSQL. The databases of agents are files of the home: rouse db AGENT backup", e.Home, e.Address)
}

// SharedLedger returns a *SharedLedgerError if the home's engine file shows that its ledger is in
// PostgreSQL, and nil otherwise.
func SharedLedger(home string) error {
	if address := sharedAddress(home); address != "" {
		return &SharedLedgerError{home, address}
	}
	return nil
}

// sharedAddress returns the PostgreSQL address of a home's ledger. It returns an empty string if
// the ledger is a file.
func sharedAddress(home string) string {
	address, _ := readEngine(home)
	return address
}

// NodeOf returns the name of a home's node. It returns an empty string if the home has not recorded
// one.
func NodeOf(home string) string {
	_, node := readEngine(home)
	return node
}

// readEngine reads the engine file of a home.
func readEngine(home string) (address, node string) {
	text, err := os.ReadFile(filepath.Join(home, engineName))
	if err != nil {
		return "", "" // opening the home reports an unreadable file
	}
	address, node, _ = strings.Cut(strings.TrimSpace(string(text)), "\n")
	return strings.TrimSpace(address), strings.TrimSpace(node)
}

// FindConfigured returns an error if the configured ledger is not the one that the home has.
func FindConfigured(ctx context.Context, dir string, cfg *config.Config, problem error) error {
	if cfg.Engine.Shared() {
		return refuseHistory(ctx, dir)
	}
	address := sharedAddress(dir)
	switch {
	case address == "":
		return FindLedger(ctx, dir)
	case problem != nil:
		return fmt.Errorf("the ledger of the home %s is in PostgreSQL (%s), and how to reach it is not known: %w", dir, address, problem)
	}
	return fmt.Errorf("the ledger of the home %s is in PostgreSQL (%s), and the configuration does not say so any more: put engine.postgres back, or name another home. Nothing was started, and nothing was changed", dir, address)
}

// refuseHistory returns an error if the home's ledger file contains runs, because a shared ledger
// would hide them.
func refuseHistory(ctx context.Context, dir string) error {
	path := filepath.Join(dir, LedgerName)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}

	var runs int
	db, err := sqlite.OpenReadOnly(path)
	if err == nil {
		err = db.QueryRowContext(ctx, `select count(*) from (select 1 from runs limit 1)`).Scan(&runs)
		err = errors.Join(err, db.Close())
	}
	if err == nil && runs == 0 || ledgerState(ctx, path) != "" {
		return nil
	}
	return fmt.Errorf("the history of this home is in %s, and engine.postgres would put it out of sight. Take it there first: rouse engine migrate --to URL; or begin with another home (--home, home in the configuration), and keep this one to look things up", path)
}

// ForgetShared records that the ledger of a home is a file again, after it was moved back from
// PostgreSQL.
func ForgetShared(home string) error {
	err := os.Remove(filepath.Join(home, engineName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// RememberEngine records that the ledger of a home is in PostgreSQL. The record keeps an empty
// ledger file from taking its place. A daemon also records the name of its node.
func RememberEngine(dir, address, node string, serves bool) error {
	knownAddress, knownNode := readEngine(dir)
	if knownAddress == address && (knownNode == node || !serves) {
		return nil
	}
	if !serves {
		node = knownNode
	}
	if err := atomicfile.Write(filepath.Join(dir, engineName), []byte(address+"\n"+node+"\n"), 0o600); err != nil {
		return fmt.Errorf("cannot record where the ledger is: %w", err)
	}
	return nil
}
