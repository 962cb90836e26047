package ledger

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"rouse/agentdb/sqlite"
)

// Enqueue accepts requests, all of them in one transaction: a run under its unique key
// and, for a file, its claim. What comes back is on disk.
//
// A claim that is taken (its run unfinished, or done) gives Blocked; if that file had
// been moved away, it has come again, and its after-move is due again. A claim whose run
// failed passes to a new run.
func (l *Ledger) Enqueue(ctx context.Context, reqs ...Request) ([]Accepted, error) {
	details := make([]string, len(reqs))
	for i, r := range reqs {
		text, err := json.Marshal(r.Detail)
		if err != nil {
			return nil, fmt.Errorf("the details of a run of %s cannot be recorded: %w", r.Job, err)
		}
		details[i] = string(text)
	}
	now := time.Now()
	out := make([]Accepted, len(reqs))
	err := l.do(ctx, func(tx *sqlite.Tx) error {
		for i, r := range reqs {
			var err error
			if r.Claim != nil {
				out[i], err = l.acceptClaim(tx, now, r, details[i])
			} else {
				out[i], err = accept(tx, now, r, r.Key, details[i])
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// accept inserts a run unless its key has one.
func accept(tx *sqlite.Tx, now time.Time, r Request, key, detail string) (Accepted, error) {
	if key == "" {
		key = string(r.Trigger) + "/" + rand.Text()
	}
	var id int64
	err := tx.QueryRow(`insert into runs (key, job, agent, triggered_by, detail, state, not_before, scheduled_at, queued_at)
		values ($1, $2, $3, $4, $5, 'queued', $6, $7, $8) on conflict (key) do nothing returning id`,
		key, r.Job, r.Agent, string(r.Trigger), detail, ms(r.NotBefore), ms(r.ScheduledAt), ms(now)).Scan(&id)
	if errors.Is(err, sql.ErrNoRows) {
		var outcome string
		err := tx.QueryRow(`select id, outcome from runs where key = $1`, key).Scan(&id, &outcome)
		return Accepted{Run: id, Outcome: Outcome(outcome)}, err
	}
	if err != nil {
		return Accepted{}, err
	}
	return Accepted{Run: id, New: true}, addEvent(tx, Event{Run: id, Job: r.Job, At: now, Kind: "run.queued"}, map[string]any{"trigger": r.Trigger})
}

// acceptClaim inserts the claim first, so that of two processes that saw the same file the
// second waits for the first and is blocked by it.
func (l *Ledger) acceptClaim(tx *sqlite.Tx, now time.Time, r Request, detail string) (Accepted, error) {
	c := r.Claim
	var id, run, generation, modified int64
	var outcome, after string
	err := tx.QueryRow(`insert into claims (job, path, hash, size, mod_time, run, generation) values ($1, $2, $3, $4, $5, 0, 0)
		on conflict (job, path, hash) do nothing returning id`, c.Job, c.Path, c.Hash, c.Size, ms(c.ModTime)).Scan(&id)
	if errors.Is(err, sql.ErrNoRows) {
		err = tx.QueryRow(`select id, run, generation, mod_time, outcome, after from claims where job = $1 and path = $2 and hash = $3`+l.lock, c.Job, c.Path, c.Hash).
			Scan(&id, &run, &generation, &modified, &outcome, &after)
	}
	if err != nil {
		return Accepted{}, err
	}
	stuck := after == AfterFailed && modified == ms(c.ModTime) // failed, and not dropped anew: it could not be moved away
	if generation > 0 && (outcome == "" || Outcome(outcome).Done() || stuck) {
		return Accepted{Run: run, Blocked: true, Outcome: Outcome(outcome)}, seenAgain(tx, now, *c, id, run, after)
	}
	generation++
	a, err := accept(tx, now, r, fmt.Sprintf("file/%d/%d", id, generation), detail)
	if err != nil {
		return Accepted{}, err
	}
	_, err = tx.Exec(`update claims set run = $1, generation = $2, size = $3, mod_time = $4, outcome = '', after = '', dest = '', error = '' where id = $5`,
		a.Run, generation, c.Size, ms(c.ModTime), id)
	return a, err
}

// seenAgain deals with the same bytes at the same path: nothing runs, and what happens to
// a file after its run happens to this one too.
func seenAgain(tx *sqlite.Tx, now time.Time, c Claim, id, run int64, after string) error {
	if after != AfterDone && after != AfterFailed {
		return nil
	}
	if _, err := tx.Exec(`update claims set after = 'pending', dest = '' where id = $1`, id); err != nil {
		return err
	}
	if after == AfterFailed {
		return nil // not dropped again: it could not be moved before
	}
	return addEvent(tx, Event{Job: c.Job, At: now, Kind: "file.blocked"}, map[string]any{"path": c.Path, "hash": c.Hash, "run": run})
}
