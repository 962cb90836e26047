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

// Enqueue accepts requests, all of them in one transaction: a run under its unique key
// and, for a file, its claim. What comes back is on disk.
//
// A content that a run has claimed, unfinished or done, gives Blocked; if its file had been
// moved away, it has been dropped again and is due to be moved again. A claim whose run failed
// gives Blocked as long as the definition of its job is the same, and then passes to a new run.
func (l *Ledger) Enqueue(ctx context.Context, reqs ...Request) ([]Accepted, error) {
	// Marshalled before the transaction, where an error would make the other writers run again.
	details := make([]string, len(reqs))
	for i, r := range reqs {
		if w := r.Detail.Webhook; w != nil { // strangers may send a secret; what a signature covers was checked before
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
		text, err := json.Marshal(l.Redact(r.Body)) // as which nothing that a stranger writes looks like the name of a file
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

			// A repeated request finds its run, and what the watch has seen since then must not be undone.
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

// insertRun inserts a run unless its key has one.
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

// enqueueClaims queues the run of a request's files. Of many files, those that other runs have
// claimed are left out; if all are, there is no run.
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
		key = "again/" + key // the audit accepts several successes of such content
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

// newClaim is a claim that a run is about to get.
type newClaim struct {
	claim.Claim
	id, generation int64
	wanted         bool // the content had its run, and a user requested another one
}

// claimContent inserts the claim first, so that of two processes that saw the same file the second
// waits for the first and is blocked by it. blocked says by which run.
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

	// The same file as before, which could not be moved away: its failed run is not repeated.
	stuck := after == claim.AfterFailed && modified == store.Millis(c.ModTime)
	undone := after == claim.AfterUndone && modified != store.Millis(c.ModTime)
	t.wanted = outcome != "" && (r.Again || undone)
	// Generation 0 was inserted above, by this transaction, and belongs to no run yet.
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

// repeatAfterMove handles the same content at the same path again: nothing runs, but the file
// is moved or deleted as after the run that had it first.
func repeatAfterMove(tx *store.Tx, now time.Time, c claim.Claim, id, run int64, after string) error {
	if after != claim.AfterDone && after != claim.AfterFailed {
		return nil
	}
	// Where the first one went stays known: of the same bytes no second copy is made there.
	tx.Run(`update claims set after = 'pending' where id = $1`, id)
	if after == claim.AfterFailed {
		return nil // the same file, which could not be moved before: no event each time it is seen
	}

	return record.AddEvent(tx, Event{Job: c.Job, At: now, Kind: "file.blocked"}, map[string]any{"path": c.Path, "hash": c.Hash, "run": run})
}

// initialTaint is the taint that a run starts with: files, webhooks and agent programs are untrusted, and what another run asked for
// inherits from that. One that has been pruned may have read anything.
func initialTaint(tx *store.Tx, r Request) (string, error) {
	d := r.Detail
	switch {
	case r.Trigger == domain.TriggerWebhook || d.File != nil || len(d.Files) > 0 || d.Folder != "" || d.Untrusted:
		return label.TaintUntrusted, nil
	case d.asker() == 0:
		return "", nil
	}

	// A wake may act on what its planner has read, and a skill on what its input is made of.
	taint, known, err := store.OrFalse(store.Value[string](tx, `select taint from runs where id = $1`, d.asker()))
	if err == nil && !known {
		return label.TaintUntrusted, nil
	}
	return taint, err
}
