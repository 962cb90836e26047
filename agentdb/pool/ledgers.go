package pool

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"rouse/agentdb"
	"rouse/agentdb/dberr"
	"rouse/agentdb/lineage"
)

// LedgerUse lists the ledger epochs that wrote to an agent's database.
type LedgerUse struct {
	Agent string
	rows  []lineage.Row // the last row is the epoch that has the database
}

// Newest returns the highest id of an epoch's runs that wrote to the database, or 0.
func (u LedgerUse) Newest(epoch string) int64 {
	for _, r := range u.rows {
		if r.ID == epoch {
			return r.Newest
		}
	}
	return 0
}

// LedgerUses returns the ledger use of every agent's database. Call it before any database is
// opened. It skips unreadable files; opening them reports the error.
func (p *Pool) LedgerUses(ctx context.Context) (out []LedgerUse, err error) {
	files, err := filepath.Glob(filepath.Join(p.o.Dir, "*", "db.sqlite"))
	if err != nil {
		return nil, err
	}

	for _, path := range files {
		if info, err := os.Stat(path); err != nil || info.Size() == 0 {
			continue
		}
		rows, err := lineage.ReadFile(ctx, path)
		if err != nil || len(rows) == 0 {
			continue
		}

		out = append(out, LedgerUse{Agent: filepath.Base(filepath.Dir(path)), rows: rows})
	}

	return out, ctx.Err()
}

// HoldUnknown blocks the databases with runs that the pool's ledger does not know, and returns
// them. Get fails for such a database until it is accepted, or opened with a ledger that knows
// the runs.
func (p *Pool) HoldUnknown(ctx context.Context, uses []LedgerUse) (held []*QuarantinedError, err error) {
	if p.o.Ledger == nil {
		return nil, nil
	}
	newest, err := p.o.Ledger.NewestRun(ctx)
	if err != nil {
		return nil, err
	}

	for _, u := range uses {
		_, why := lineage.Unknown(u.rows, p.o.Ledger.Epochs(), newest)
		if why == "" {
			continue
		}

		e := p.unknownRuns(u.Agent, &lineage.UnknownRunsError{Path: p.path(u.Agent), Reason: why})
		held = append(held, e)
		p.mu.Lock()
		p.damaged[strings.ToLower(u.Agent)] = e
		p.mu.Unlock()
	}

	return held, nil
}

func (p *Pool) unknownRuns(agent string, err *lineage.UnknownRunsError) *QuarantinedError {
	return &QuarantinedError{Agent: agent, Reason: err.Reason, UnknownRuns: true, err: err}
}

// CheckFiles quarantines open databases if their file was deleted, replaced or truncated. It
// returns the agents of the databases that it has just quarantined.
func (p *Pool) CheckFiles(ctx context.Context) (lost []string) {
	p.mu.Lock()
	var open []*poolEntry
	for _, s := range p.entries {
		if s.opened() && s.db != nil && !s.closing {
			open = append(open, s)
		}
	}
	p.mu.Unlock()

	for _, s := range open {
		if s.db.Health.CheckFile(ctx) {
			lost = append(lost, s.key)
		}
	}
	return lost
}

// adopt accepts a database with runs that the pool's ledger does not know. The file must be
// intact and not open elsewhere.
func (r *Recovery) adopt(ctx context.Context, agent string) error {
	nothing := &dberr.Error{Kind: dberr.KindInvalid, Message: fmt.Sprintf("there is nothing to accept: nothing is wrong with the database of %s", agent)}
	if !r.pool.Has(agent) { // opening would create the file
		return nothing
	}

	db, err := r.openAdopting(ctx, agent)
	if err != nil {
		return r.pool.describe(agent, err)
	}
	if db.UnknownRuns() == "" {
		return errors.Join(nothing, db.Close())
	}

	err = db.Backups.RecordOwnerAction(ctx, agent, "-- the owner let this database go on with the ledger of this home: "+db.UnknownRuns())
	return errors.Join(err, db.Close())
}

func (r *Recovery) openAdopting(ctx context.Context, agent string) (*agentdb.DB, error) {
	return agentdb.Open(ctx, agentdb.Options{Path: r.pool.path(agent), Agent: agent, Backups: r.pool.o.Backups, Logger: r.pool.o.Logger, Ledger: r.pool.o.Ledger, Adopt: true})
}
