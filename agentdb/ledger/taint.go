package ledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"rouse/agentdb/sqlite"
	"rouse/internal/domain"
)

// TaintUntrusted is the letter in Run.Taint for content that strangers may have written. A run
// starts with it when files, a webhook, or a wake planned by such a run started it.
const TaintUntrusted = "A"

// TaintUpdate say what calls that are about to be made do to the taint of their run.
type TaintUpdate struct {
	Taint string // letters that the run has from now on, beside those that it has
	Tier  string // the confinement of a program that is started; a run keeps the weakest
	// Keeps says that they write the agent's database or files. If the run is tainted by untrusted
	// content, those are untrusted from then on.
	WritesMemory bool
	// Used are the items of the inbox that allow them, with the keys of the calls.
	UsedApprovals map[int64]string
}

// RecordTaint records what an attempt is about to do, before it is done.
func (l *Ledger) RecordTaint(ctx context.Context, a Attempt, m TaintUpdate) error {
	now := l.now()
	return l.do(ctx, func(tx *sqlite.Tx) error {
		r, err := l.checkFence(tx, a)
		if err != nil {
			return err
		}

		// Tiers are letters, A the strongest confinement: the greater one is the weaker.
		taint, tier := mergeTaint(r.Taint, m.Taint), max(r.Tier, m.Tier)
		if taint != r.Taint || tier != r.Tier {
			if _, err := tx.Exec(`update runs set taint = $1, tier = $2 where id = $3`, taint, tier, r.ID); err != nil {
				return err
			}
		}

		if taint != r.Taint {
			if err := addEvent(tx, Event{Run: r.ID, Job: r.Job, At: now, Kind: "run.tainted"}, map[string]any{"taint": strings.Split(taint, "")}); err != nil {
				return err
			}
		}

		if m.WritesMemory && strings.Contains(taint, TaintUntrusted) {
			// The first run to do so stays on record: it is where the owner has to look.
			if _, err := tx.Exec(`insert into untrusted (agent, run, at) values ($1, $2, $3) on conflict (agent) do nothing`, r.Agent, r.ID, ms(now)); err != nil {
				return err
			}
		}

		for id, key := range m.UsedApprovals {
			// The same call may be made again after a crash; no other one may use the approval.
			used, err := tx.Exec(`update inbox set used = $1 where id = $2 and run = $3 and (used = '' or used = $1)`, key, id, r.ID)
			if err := requireRow(used, err, "the approval %d was used before", id); err != nil {
				return err
			}
		}

		return nil
	})
}

// mergeTaint returns the letters of both, each once and in order.
func mergeTaint(a, b string) string {
	letters := strings.Split(a+b, "")
	slices.Sort(letters)
	return strings.Join(slices.Compact(letters), "")
}

// MemoryTaintedBy returns the first run that wrote the database or the files of an agent while tainted
// by untrusted content; 0 when none did.
func (l *Ledger) MemoryTaintedBy(ctx context.Context, agent string) (run int64, err error) {
	err = l.statements.row(ctx, `select run from untrusted where agent = $1`, agent).Scan(&run)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	return run, err
}

// UntrustedMemory is an agent's database and files, written by a run that was tainted by untrusted
// content.
type UntrustedMemory struct {
	Agent string
	Run   int64 // the first that did
	At    time.Time
}

// UntrustedMemories lists the agents whose memory is not trusted.
func (l *Ledger) UntrustedMemories(ctx context.Context) ([]UntrustedMemory, error) {
	rows, err := l.read.QueryContext(ctx, `select agent, run, at from untrusted order by agent`)
	return collect(rows, err, func(rows *sql.Rows) (m UntrustedMemory, err error) {
		var at int64
		err = rows.Scan(&m.Agent, &m.Run, &at)
		m.At = instant(at)
		return m, err
	})
}

// TrustMemory records that an owner has inspected the database and the files of an agent and trusts
// them again.
func (l *Ledger) TrustMemory(ctx context.Context, agent string) error {
	now := l.now()
	return l.do(ctx, func(tx *sqlite.Tx) error {
		gone, err := tx.Exec(`delete from untrusted where agent = $1`, agent)
		if err == nil {
			var n int64
			if n, err = gone.RowsAffected(); err == nil && n == 0 {
				err = fmt.Errorf("the memory of agent %s is trusted already: %w", agent, ErrNotFound)
			}
		}
		if err != nil {
			return err
		}

		return addEvent(tx, Event{At: now, Kind: "memory.trusted"}, map[string]any{"agent": agent})
	})
}

// initialTaint is the taint that a run starts with: files and webhooks are untrusted, and a wake
// inherits from its planner. A planner that has been pruned may have read anything.
func initialTaint(tx *sqlite.Tx, r Request) (string, error) {
	d := r.Detail
	switch {
	case r.Trigger == domain.TriggerWebhook || d.File != nil || len(d.Files) > 0 || d.Folder != "":
		return TaintUntrusted, nil
	case d.Wake == nil || d.Wake.AskedBy == 0:
		return "", nil
	}

	var taint string
	// A wake may act on what its planner has read.
	err := tx.QueryRow(`select taint from runs where id = $1`, d.Wake.AskedBy).Scan(&taint)
	if errors.Is(err, sql.ErrNoRows) {
		return TaintUntrusted, nil
	}

	return taint, err
}
