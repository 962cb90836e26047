package ledger

import (
	"context"
	"slices"
	"strings"
	"time"

	"rouse/agentdb/sqlite"
	"rouse/internal/domain"
)

// TaintUntrusted is the letter in Run.Taint for content that strangers may have written. A run
// starts with it when files, a webhook, or a wake planned by such a run started it.
const TaintUntrusted = "A"

// TaintUpdate is what calls that are about to be made do to the taint of their run.
type TaintUpdate struct {
	Taint string // letters that the run has from now on, beside those that it has
	Tier  string // the confinement of a program that is started; a run keeps the weakest
	// Writes are the places that they write. What labels of data the run has, those have from then on.
	Writes []Place
	// UsedApprovals are the items of the inbox that allow them, with the keys of the calls.
	UsedApprovals map[int64]string
}

// RecordTaint records what an attempt is about to do, before it is done.
func (l *Ledger) RecordTaint(ctx context.Context, a Attempt, m TaintUpdate) error {
	now := l.now()
	var labels []Label
	err := l.do(ctx, func(tx *sqlite.Tx) error {
		r, err := l.checkFence(tx, a)
		if err != nil {
			return err
		}

		taint, err := taintRun(tx, r, m, now)
		if err != nil {
			return err
		}
		labels = addLabels(tx, r, taint, m.Writes, now)
		for id, key := range m.UsedApprovals {
			// The same call may be made again after a crash; no other one may use the approval.
			used, err := tx.Exec(`update inbox set used = $1 where id = $2 and run = $3 and (used = '' or used = $1)`, key, id, r.ID)
			if err := requireRow(used, err, "the approval %d was used before", id); err != nil {
				return err
			}
		}

		return nil
	})
	if err == nil {
		l.keepLabels(labels)
	}
	return err
}

// taintRun adds to the taint of a run, and returns all of it.
func taintRun(tx *sqlite.Tx, r Run, m TaintUpdate, now time.Time) (string, error) {
	// Tiers are letters, A the strongest confinement: the greater one is the weaker.
	taint, tier := mergeTaint(r.Taint, m.Taint), max(r.Tier, m.Tier)
	if taint != r.Taint || tier != r.Tier {
		tx.Run(`update runs set taint = $1, tier = $2 where id = $3`, taint, tier, r.ID)
	}
	if taint == r.Taint {
		return taint, nil
	}
	return taint, addEvent(tx, Event{Run: r.ID, Job: r.Job, At: now, Kind: "run.tainted"}, map[string]any{"taint": strings.Split(taint, "")})
}

// mergeTaint returns the letters of both, each once and in order.
func mergeTaint(a, b string) string {
	letters := strings.Split(a+b, "")
	slices.Sort(letters)
	return strings.Join(slices.Compact(letters), "")
}

// initialTaint is the taint that a run starts with: files, webhooks and agent programs are untrusted, and what another run asked for
// inherits from that. One that has been pruned may have read anything.
func initialTaint(tx *sqlite.Tx, r Request) (string, error) {
	d := r.Detail
	switch {
	case r.Trigger == domain.TriggerWebhook || d.File != nil || len(d.Files) > 0 || d.Folder != "" || d.Untrusted:
		return TaintUntrusted, nil
	case d.asker() == 0:
		return "", nil
	}

	// A wake may act on what its planner has read, and a skill on what its input is made of.
	taint, known, err := orFalse(value[string](tx, `select taint from runs where id = $1`, d.asker()))
	if err == nil && !known {
		return TaintUntrusted, nil
	}
	return taint, err
}
