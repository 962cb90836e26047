// Package audit proves what a home promises, from what lies in it: on a home that is served, on one that is not, and on what
// a backup holds.
//
// # Design
//
// It reads and changes nothing, and believes no more of what it reads than its rows say. What is about the ledger alone is
// proved there (integrity.Audit), at one instant of it. The agents' databases are held against that ledger as it is afterwards:
// a run is in the ledger before it writes anywhere.
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

// Checks are all checks, in the order in which they are made.
func Checks() []integrity.Check { return append(integrity.Checks(), databases) }

// Options say what is audited and who hears of it.
type Options struct {
	Home   string
	Frozen bool                                   // nobody has it open, and nothing may be written there: what a backup holds
	Begin  func(check integrity.Check, n, of int) // nil: nobody
	Found  func(integrity.Violation) error        // an error ends the audit
}

// Result is what an audit has come to.
type Result struct {
	Home       string  `json:"home"`
	Ledger     string  `json:"ledger"` // its id
	Runs       int64   `json:"newest_run"`
	Checks     []Check `json:"checks"`
	Violations int     `json:"violations"`
	Warnings   int     `json:"warnings"` // that a clock which was set back explains
}

// Check is what one check has come to.
type Check struct {
	integrity.Check
	Violations int `json:"violations"`
}

// Home audits a home, or what a backup holds of one.
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
