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
	// engineName is the file of a home whose ledger is in PostgreSQL: the address of the database, without a password, and below it
	// the name of the node that the home is of.
	engineName = "engine"
)

// SharedLedgerError is a home whose ledger is in PostgreSQL, of which something was wanted that is done with a file.
type SharedLedgerError struct{ Home, Address string }

func (e *SharedLedgerError) Error() string {
	return fmt.Sprintf("the ledger of the home %s is in PostgreSQL (%s), and there is no file of it here: back it up with pg_dump, bring it back with pg_restore while no node runs, and have its size from PostgreSQL. The databases of agents are files of the home: rouse db AGENT backup", e.Home, e.Address)
}

// SharedLedger is a *SharedLedgerError when the ledger of a home is in PostgreSQL, as far as the home knows; nil when it is a file.
func SharedLedger(home string) error {
	if address := sharedAddress(home); address != "" {
		return &SharedLedgerError{home, address}
	}
	return nil
}

// sharedAddress is where in PostgreSQL the ledger of a home is, "" where it is a file.
func sharedAddress(home string) string {
	address, _ := readEngine(home)
	return address
}

// NodeOf is the name of the node that a home is of, "" where it does not know one.
func NodeOf(home string) string {
	_, node := readEngine(home)
	return node
}

// readEngine reads what a home remembers of its ledger in PostgreSQL.
func readEngine(home string) (address, node string) {
	text, err := os.ReadFile(filepath.Join(home, engineName))
	if err != nil {
		return "", "" // one that cannot be read is found by whoever opens the home
	}
	address, node, _ = strings.Cut(strings.TrimSpace(string(text)), "\n")
	return strings.TrimSpace(address), strings.TrimSpace(node)
}

// FindConfigured says whether the ledger that a configuration means is the one that a home has had, or may have.
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

// refuseHistory refuses a home whose runs are in a file of it: they would be out of sight.
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

// ForgetShared has a home be one whose ledger is a file, after it was brought back from PostgreSQL.
func ForgetShared(home string) error {
	err := os.Remove(filepath.Join(home, engineName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// RememberEngine has a home remember where its ledger in PostgreSQL is, so that an empty one in a file never takes its place. A daemon
// also records the name of its node.
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
