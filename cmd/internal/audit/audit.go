// Package audit checks the consistency of a home, while a daemon serves it or not, and of a backup.
// It only reads.
//
// The ledger is checked first, by integrity.Audit in one snapshot. The agents' databases are
// compared with the later state of the ledger. A run is recorded in the ledger before it writes
// anywhere.
package audit

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"rouse/agentdb"
	"rouse/internal/ledger"
	"rouse/internal/ledger/integrity"
)

// databases is the check of the agents' databases.
var databases = integrity.Check{Name: "database", Promise: "an agent's database is sound, and the ledger knows the runs whose writes it keeps"}

// Checks returns all checks in the order in which they run.
func Checks() []integrity.Check { return append(integrity.Checks(), databases) }

// Options holds the options of an audit.
type Options struct {
	Home string
	// Frozen means that no process has the home open, and that the audit must not write there. This
	// is the case for the content of a backup.
	Frozen bool
	// Begin is called when a check begins. Optional.
	Begin func(check integrity.Check, n, of int)
	// Found is called for each violation. If it returns an error, the audit ends.
	Found func(integrity.Violation) error
}

// Result is the result of an audit.
type Result struct {
	Home       string  `json:"home"`
	Ledger     string  `json:"ledger"` // ID of the ledger
	Runs       int64   `json:"newest_run"`
	Checks     []Check `json:"checks"`
	Violations int     `json:"violations"`
	Warnings   int     `json:"warnings"` // violations explained by a clock that was set back
}

// Check is the result of one check.
type Check struct {
	integrity.Check
	Violations int `json:"violations"`
}

// Home audits a home or the content of a backup.
func Home(ctx context.Context, o Options) (_ Result, err error) {
	at := ledger.Options{Path: filepath.Join(o.Home, "ledger.db"), Blobs: filepath.Join(o.Home, "blobs")}
	open := ledger.OpenShared
	if o.Frozen {
		open = ledger.OpenFrozen
	}
	l, err := open(ctx, at)
	if err != nil {
		return Result{}, err
	}
	defer func() { err = errors.Join(err, l.Close()) }()

	out := Result{Home: o.Home, Ledger: l.ID()}
	if out.Runs, err = l.NewestRun(ctx); err != nil {
		return out, err
	}
	begin := func(c integrity.Check) {
		out.Checks = append(out.Checks, Check{Check: c})
		if o.Begin != nil {
			o.Begin(c, len(out.Checks), len(Checks()))
		}
	}
	found := func(v integrity.Violation) error {
		out.Checks[len(out.Checks)-1].Violations++
		if v.Clock {
			out.Warnings++
		} else {
			out.Violations++
		}
		return o.Found(v)
	}

	if err := integrity.Audit(ctx, l.DB, l.Blobs, integrity.Options{Begin: begin, Found: found}); err != nil {
		return out, err
	}

	begin(databases)
	files, err := filepath.Glob(filepath.Join(o.Home, "agents", "*", "db.sqlite"))
	if err != nil {
		return out, err
	}
	for _, path := range files {
		agent := filepath.Base(filepath.Dir(path))
		err := agentdb.Audit(ctx, path, l, o.Frozen, func(text string) error {
			return found(integrity.Violation{Check: databases.Name, Text: fmt.Sprintf("the database of %s: %s", agent, text)})
		})
		if err != nil {
			return out, fmt.Errorf("the database of %s cannot be audited: %w", agent, err)
		}
	}
	return out, nil
}
