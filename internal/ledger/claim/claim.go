// Package claim stores which file contents jobs claimed for runs, and what happened to the files
// after the runs. It also stores the state of the watches of jobs.
package claim

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"rouse/internal/domain"
	"rouse/internal/ledger/record"
	"rouse/internal/ledger/store"
)

// Claims stores the file contents that jobs claimed for runs, and what happened to the files.
type Claims struct{ DB *store.DB }

const claimColumns = `id, job, path, hash, size, mod_time, run, outcome, after, dest`

func claimFields(c *Status) []any {
	return []any{&c.ID, &c.Job, &c.Path, &c.Hash, &c.Size, store.Time(&c.ModTime), &c.Run, &c.Outcome, &c.After, &c.Dest}
}

// Of returns the claim of a job on a file content, and reports whether there is one.
func (l *Claims) Of(ctx context.Context, job, path, hash string) (Status, bool, error) {
	return store.OrFalse(store.One(store.Reads(ctx, l.DB), claimFields, `select `+claimColumns+` from claims where job = $1 and path = $2 and hash = $3`, job, l.DB.StoredPath(path), hash))
}

// OnPath returns the claims of a job on a path, one for each content that the file had.
func (l *Claims) OnPath(ctx context.Context, job, path string) ([]Status, error) {
	return store.List(store.Reads(ctx, l.DB), claimFields, `select `+claimColumns+` from claims where job = $1 and path = $2 order by id`, job, l.DB.StoredPath(path))
}

// OfRun returns the claims of a run on its input files.
func (l *Claims) OfRun(ctx context.Context, run int64) ([]Status, error) {
	return store.List(store.Reads(ctx, l.DB), claimFields, `select `+claimColumns+` from claims where run = $1 and own = 0 order by id`, run)
}

// LeaveFiles cancels moving or deleting the files of a finished run before the run is undone. The
// undo may restore the files at their old paths.
func (l *Claims) LeaveFiles(ctx context.Context, run int64) error {
	return store.Exec(ctx, l.DB, `update claims set after = $1 where run = $2 and own = 0 and outcome <> ''`, AfterLeft, run)
}

// DisownFiles lets the file contents of an undone run start new runs when they are dropped again.
// The ModTime of each claim identifies the file that is at its path now and must not start a run.
// It is zero if there is no such file.
func (l *Claims) DisownFiles(ctx context.Context, claims []Status) error {
	return store.Write(ctx, l.DB, func(tx *store.Tx) error {
		for _, c := range claims {
			tx.Run(`update claims set after = $1, mod_time = $2 where id = $3 and run = $4 and own = 0 and outcome <> ''`,
				AfterUndone, store.Millis(c.ModTime), c.ID, c.Run)
		}
		return nil
	})
}

// PendingAfterMoves returns the claims of finished runs that still need their file to be moved,
// deleted or left. If a claim has no outcome, its run was retried meanwhile. Its file is no longer
// moved, but an earlier attempt may already have moved it.
func (l *Claims) PendingAfterMoves(ctx context.Context, limit int) ([]Status, error) {
	return store.List(store.Reads(ctx, l.DB), claimFields, `select `+claimColumns+` from claims where after = 'pending' order by id limit $1`, limit)
}

// FinishAfterMove records what happened to a file after its run. The state after is one of:
//   - AfterDone: dest is the new path.
//   - AfterLeft: the file stays at its path.
//   - AfterFailed: why is the reason.
//   - AfterNone: the run was retried.
//
// FinishAfterMove reports false if the run was retried since c was read, or if another process has
// recorded the result. It then records only dest, because the configured action may have changed.
func (l *Claims) FinishAfterMove(ctx context.Context, c Status, after, dest, why string) (ended bool, err error) {
	err = store.Write(ctx, l.DB, func(tx *store.Tx) (err error) {
		ended, err = store.Changed(tx, `update claims set after = $1, dest = $2, error = $3 where id = $4 and after = 'pending' and run = $5 and outcome = $6`,
			after, dest, tx.Redact(why), c.ID, c.Run, string(c.Outcome))
		switch {
		case err != nil:
			return err
		case ended && after != AfterNone && (after != AfterLeft || why != ""):
			return record.AddEvent(tx, record.Event{Job: c.Job, Run: c.Run, At: l.DB.Now(), Kind: "file.after"}, map[string]any{"path": c.Path, "state": after, "dest": dest, "error": why})
		case !ended && dest != "":
			// The retried run waits for the new path of its file.
			tx.Run(`update claims set after = case when outcome = '' then '' else after end, dest = $1 where id = $2 and after = 'pending' and run = $3`, dest, c.ID, c.Run)
		}
		return nil
	})
	return ended, err
}

// ClaimOutput marks a content as written by the job's own run, so that the job's watch ignores it.
func (l *Claims) ClaimOutput(ctx context.Context, a record.Attempt, c Claim) error {
	return store.Write(ctx, l.DB, func(tx *store.Tx) error {
		if _, err := record.CheckFence(tx, l.DB, a); err != nil {
			return err
		}

		// Keep the claim of an unfinished run: it took the content first.
		tx.Run(`insert into claims (job, path, hash, size, mod_time, run, generation, outcome, after, own) values ($1, $2, $3, $4, $5, $6, 1, $7, $8, 1)
			on conflict (job, path, hash) do update set run = excluded.run, outcome = excluded.outcome, after = excluded.after, own = 1, dest = '', error = ''
			where claims.outcome <> '' or claims.own = 1`,
			c.Job, l.DB.StoredPath(c.Path), c.Hash, c.Size, store.Millis(c.ModTime), a.Run, string(domain.OutcomeSuccess), AfterLeft)
		return nil
	})
}

// Release gives up file contents that a run claimed but continues without, because the files were
// deleted or changed. If the same content is dropped again, it starts a new run.
func (l *Claims) Release(ctx context.Context, a record.Attempt, claims ...Claim) error {
	return store.Write(ctx, l.DB, func(tx *store.Tx) error {
		if _, err := record.CheckFence(tx, l.DB, a); err != nil {
			return err
		}

		for _, c := range claims {
			tx.Run(`update claims set run = 0, outcome = $1, after = '' where job = $2 and path = $3 and hash = $4 and run = $5 and own = 0`,
				string(domain.OutcomeSkipped), c.Job, l.DB.StoredPath(c.Path), c.Hash, a.Run)
		}
		return nil
	})
}

// FileBack is the kind of event recorded when a file reappears unchanged after its run failed.
const FileBack = "file.back"

// MarkReappeared records that a file content has reappeared after its run failed, and returns the
// time it was first seen again. The record keeps a sync tool that restores files from starting runs
// again and again.
//
// It reports false if the job's definition has changed or the failed run is no longer stored. The
// content then starts a new run. The notices are sent only for the first content of a job that
// reappears.
func (l *Claims) MarkReappeared(ctx context.Context, c Status, modified time.Time, definition string, notices []record.Notice) (since time.Time, back bool, err error) {
	told, err := json.Marshal(map[string]any{"path": c.Path, "hash": c.Hash, "run": c.Run})
	if err != nil {
		return time.Time{}, false, err
	}

	err = store.Write(ctx, l.DB, func(tx *store.Tx) error {
		since, back = l.DB.Now().Truncate(time.Millisecond), false
		same, err := FailedAlike(tx, c.Run, definition)
		if err != nil || !same {
			return err
		}
		back = true

		var others, known int
		if err := store.Scan(tx, []any{&others, &known}, `select count(*), coalesce(max(case when id = $1 then 1 else 0 end), 0) from claims where job = $2 and after = $3`, c.ID, c.Job, AfterBack); err != nil {
			return err
		}
		if known > 0 {
			first, err := store.TimeOf(tx, `select coalesce(max(at), 0) from events where run = 0 and job = $1 and kind = $2 and data = $3`, c.Job, FileBack, string(told))
			if !first.IsZero() {
				since = first
			}
			return err
		}

		// Update only the state that was read: the owner may have retried the run meanwhile.
		marked, err := store.Changed(tx, `update claims set after = $1, mod_time = $2 where id = $3 and run = $4 and outcome = $5 and after = $6`,
			AfterBack, store.Millis(modified), c.ID, c.Run, string(c.Outcome), c.After)
		if err != nil || !marked {
			return err
		}

		if others == 0 {
			record.AddNotices(tx, since, notices...)
		}
		return record.AddEvent(tx, record.Event{Job: c.Job, At: since, Kind: FileBack, Data: told}, nil)
	})
	return since, back, err
}

// BackGone records that a file that had reappeared after its run failed is gone again.
func (l *Claims) BackGone(ctx context.Context, c Status) error {
	return store.Exec(ctx, l.DB, `update claims set after = $1 where id = $2 and run = $3 and after = $4`, AfterDone, c.ID, c.Run, AfterBack)
}

// FailedAlike reports whether a failed run used the current definition of its job. It returns false
// if the run is no longer stored, because such a run cannot be retried.
func FailedAlike(tx *store.Tx, run int64, definition string) (bool, error) {
	text, known, err := store.OrFalse(store.Value[[]byte](tx, `select detail from runs where id = $1`, run))
	if err != nil || !known {
		return false, err
	}

	var d struct {
		Definition string `json:"definition"`
	}
	if err := json.Unmarshal(text, &d); err != nil {
		return false, fmt.Errorf("the details of run %d are damaged: %w", run, err)
	}
	return d.Definition == definition, nil
}

// Claim is one file content that one job takes for a run.
type Claim struct {
	Job, Path, Hash string
	Size            int64
	ModTime         time.Time
}

// States of a file after its run.
const (
	AfterNone    = ""
	AfterPending = "pending" // the run has finished; the watcher has to act
	AfterDone    = "done"    // moved or deleted
	AfterLeft    = "left"    // stays at its path, as configured
	AfterFailed  = "failed"  // could not be moved; retried when the file is seen again
	// The run failed and the file reappeared unchanged. It waits for its owner or for another job.
	AfterBack = "back"
	// The run was undone. The file now at the path starts no run; another file with the same
	// content does.
	AfterUndone = "undone"
)

// Status is a claim together with its run.
type Status struct {
	Claim
	ID, Run int64
	Outcome domain.Outcome // empty while the run is unfinished
	After   string
	Dest    string // path of the file after it was moved
}
