package ledger

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"time"

	"rouse/internal/domain"
	"rouse/internal/ledger/blob"
	"rouse/internal/ledger/claim"
	"rouse/internal/ledger/label"
	"rouse/internal/ledger/record"
	"rouse/internal/ledger/store"
)

// Enqueue accepts requests in one transaction: for each, a run under its unique key and, for a
// file, its claim. The results are durable when it returns.
//
// Content that an unfinished or successful run has claimed is Blocked. If its file had been moved
// away, the new copy is also due to be moved. Content of a failed run is Blocked while its job has
// the same definition. After that, a new run takes over the claim.
func (l *Ledger) Enqueue(ctx context.Context, reqs ...Request) ([]Accepted, error) {
	// Marshal before the transaction: an error inside it would make the other writers run again.
	details := make([]string, len(reqs))
	for i, r := range reqs {
		if w := r.Detail.Webhook; w != nil { // untrusted senders may include secrets; the signature was verified before
			clean := *w
			clean.ID, clean.Event = l.Redact(w.ID), l.Redact(w.Event)
			r.Detail.Webhook = &clean
		}
		text, err := json.Marshal(r.Detail)
		if err != nil {
			return nil, fmt.Errorf("the details of a run of %s cannot be recorded: %w", r.Job, err)
		}
		details[i] = string(text)
	}

	defer l.Blobs.Hold()()
	bodies, hashes := make([]string, len(reqs)), make([]string, len(reqs))
	for i, r := range reqs {
		text, err := json.Marshal(l.Redact(r.Body)) // as JSON text, no untrusted body can look like the file name of a blob
		if err == nil {
			bodies[i], hashes[i], err = l.Blobs.Pack(ctx, string(text))
		}
		if err != nil {
			return nil, err
		}
	}

	now := l.Now()
	out := make([]Accepted, len(reqs))
	err := store.Write(ctx, l.DB, func(tx *store.Tx) (err error) {
		for i, r := range reqs {
			if r.Claim != nil || len(r.Claims) > 0 {
				out[i], err = enqueueClaims(tx, l.DB, now, r, details[i])
			} else {
				out[i], err = insertRun(tx, now, r, r.Key, details[i])
			}

			// A repeated request returns its existing run and must not undo later state of the
			// watch.
			if err == nil && r.Watch != nil && out[i].New {
				st := *r.Watch
				st.Run = out[i].Run
				claim.SaveWatch(tx, st)
			}
			if err == nil && r.Detail.Webhook != nil && out[i].New {
				blob.Keep(tx, hashes[i], out[i].Run)
				tx.Run(`insert into deliveries (run, body) values ($1, $2)`, out[i].Run, bodies[i])
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	return out, err
}

// insertRun inserts a run, or returns the run that already has the key.
func insertRun(tx *store.Tx, now time.Time, r Request, key, detail string) (Accepted, error) {
	if key == "" {
		key = string(r.Trigger) + "/" + rand.Text()
	}

	taint, err := initialTaint(tx, r)
	if err != nil {
		return Accepted{}, err
	}

	id, isNew, err := store.OrFalse(store.Value[int64](tx, `insert into runs (key, job, agent, triggered_by, detail, state, not_before, scheduled_at, queued_at, taint)
		values ($1, $2, $3, $4, $5, 'queued', $6, $7, $8, $9) on conflict (key) do nothing returning id`,
		key, r.Job, r.Agent, string(r.Trigger), detail, store.Millis(r.NotBefore), store.Millis(r.ScheduledAt), store.Millis(now), taint))
	if err != nil {
		return Accepted{}, err
	}
	if !isNew {
		return store.One(tx, func(a *Accepted) []any { return []any{&a.Run, &a.Outcome} }, `select id, outcome from runs where key = $1`, key)
	}
	return Accepted{Run: id, New: true}, record.AddEvent(tx, Event{Run: id, Job: r.Job, At: now, Kind: "run.queued"}, map[string]any{"trigger": r.Trigger})
}

// enqueueClaims queues the run of a request with files. Files that other runs have claimed are left
// out. If all are claimed, it queues no run.
func enqueueClaims(tx *store.Tx, db *store.DB, now time.Time, r Request, detail string) (Accepted, error) {
	claims := r.Claims
	if r.Claim != nil {
		claims = []claim.Claim{*r.Claim}
	}

	var mine []newClaim
	var blocked Accepted
	free := r.Detail
	free.Files = nil
	for i, c := range claims {
		t, by, err := claimContent(tx, db, now, c, r)
		switch {
		case err != nil:
			return Accepted{}, err
		case by != nil:
			blocked = *by
			continue
		}

		mine = append(mine, t)
		if len(r.Claims) > 0 {
			free.Files = append(free.Files, r.Detail.Files[i])
		}
	}
	if len(mine) == 0 {
		return blocked, nil
	}

	// A claim that passes to a new run has the next generation, and so another key.
	key := fmt.Sprintf("file/%d/%d", mine[0].id, mine[0].generation)
	if mine[0].wanted {
		key = "again/" + key // the audit accepts several successful runs of such content
	}
	if len(r.Claims) > 0 {
		key = "batch/" + key
		text, err := json.Marshal(free)
		if err != nil {
			return Accepted{}, err
		}
		detail = string(text)
	}

	a, err := insertRun(tx, now, r, key, detail)
	if err != nil {
		return Accepted{}, err
	}

	for _, t := range mine {
		tx.Run(`update claims set run = $1, generation = $2, size = $3, mod_time = $4, outcome = '', after = '', dest = '', error = '', own = 0 where id = $5`,
			a.Run, t.generation, t.Size, store.Millis(t.ModTime), t.id)
		if r.Breaker.MaxClaims > 0 && !a.BreakerTripped {
			if a.BreakerTripped, err = r.Breaker.Trip(tx, db, t.Job, t.Path, a.Run, now); err != nil {
				return a, err
			}
		}
	}

	return a, nil
}

// newClaim is a claim that a new run is about to get.
type newClaim struct {
	claim.Claim
	id, generation int64
	wanted         bool // the content already had a run, and a user requested another one
}

// claimContent claims content for a new run. It inserts the row first, so that a second process
// that sees the same file waits for the first. If another run has the claim, it returns that run in
// blocked.
func claimContent(tx *store.Tx, db *store.DB, now time.Time, c claim.Claim, r Request) (_ newClaim, blocked *Accepted, err error) {
	t := newClaim{Claim: c}
	var run, modified int64
	var outcome domain.Outcome
	var after string
	tx.Run(`insert into claims (job, path, hash, size, mod_time, run, generation) values ($1, $2, $3, $4, $5, 0, 0)
		on conflict (job, path, hash) do nothing`, c.Job, c.Path, c.Hash, c.Size, store.Millis(c.ModTime))
	if err := store.Scan(tx, []any{&t.id, &run, &t.generation, &modified, &outcome, &after},
		`select id, run, generation, mod_time, outcome, after from claims where job = $1 and path = $2 and hash = $3`+db.ForUpdate, c.Job, c.Path, c.Hash); err != nil {
		return t, nil, err
	}

	// The file could not be moved away and is unchanged, so its failed run is not repeated.
	stuck := after == claim.AfterFailed && modified == store.Millis(c.ModTime)
	undone := after == claim.AfterUndone && modified != store.Millis(c.ModTime)
	t.wanted = outcome != "" && (r.Again || undone)
	// Generation 0 was inserted by this transaction and belongs to no run yet.
	if t.generation > 0 && !t.wanted && (outcome == "" || outcome.Done() || stuck || after == claim.AfterUndone) {
		return t, &Accepted{Run: run, Blocked: true, Outcome: outcome}, repeatAfterMove(tx, now, c, t.id, run, after)
	}

	if outcome.Failed() && !r.Named && !t.wanted {
		if same, err := claim.FailedAlike(tx, run, r.Detail.Definition); err != nil || same {
			return t, &Accepted{Run: run, Blocked: true, Outcome: outcome}, err
		}
	}

	t.generation++
	return t, nil, nil
}

// repeatAfterMove marks a file for moving or deletion if its content had already run at the same
// path. It queues no run.
func repeatAfterMove(tx *store.Tx, now time.Time, c claim.Claim, id, run int64, after string) error {
	if after != claim.AfterDone && after != claim.AfterFailed {
		return nil
	}
	// The destination of the first file stays known, so no second copy is made there.
	tx.Run(`update claims set after = 'pending' where id = $1`, id)
	if after == claim.AfterFailed {
		return nil // the same file could not be moved before; do not add an event each time it is seen
	}

	return record.AddEvent(tx, Event{Job: c.Job, At: now, Kind: "file.blocked"}, map[string]any{"path": c.Path, "hash": c.Hash, "run": run})
}

// initialTaint returns the taint that a run starts with. Files, webhooks and requests of other
// programs are untrusted. Other runs inherit the taint of the run that caused them. If that run has
// been pruned, the taint is untrusted.
func initialTaint(tx *store.Tx, r Request) (string, error) {
	d := r.Detail
	switch {
	case r.Trigger == domain.TriggerWebhook || d.File != nil || len(d.Files) > 0 || d.Folder != "" || d.Untrusted:
		return label.TaintUntrusted, nil
	case d.asker() == 0:
		return "", nil
	}

	// A wake may act on content that its planner has read, and a skill on its input.
	taint, known, err := store.OrFalse(store.Value[string](tx, `select taint from runs where id = $1`, d.asker()))
	if err == nil && !known {
		return label.TaintUntrusted, nil
	}
	return taint, err
}
