// Package claim has the contents of files that jobs took for their runs, what became of the files after the runs, and what the watches of
// jobs remember.
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

// Claims has the contents of files that jobs took for their runs, and what became of the files.
type Claims struct{ DB *store.DB }

const claimColumns = `id, job, path, hash, size, mod_time, run, outcome, after, dest`

func claimFields(c *Status) []any {
	return []any{&c.ID, &c.Job, &c.Path, &c.Hash, &c.Size, store.Time(&c.ModTime), &c.Run, &c.Outcome, &c.After, &c.Dest}
}

// Of looks up who claimed a content; false when nobody did.
func (l *Claims) Of(ctx context.Context, job, path, hash string) (Status, bool, error) {
	return store.OrFalse(store.One(store.Reads(ctx, l.DB), claimFields, `select `+claimColumns+` from claims where job = $1 and path = $2 and hash = $3`, job, l.DB.StoredPath(path), hash))
}

// OnPath lists the claims of a job on a path: one for each content that was there.
func (l *Claims) OnPath(ctx context.Context, job, path string) ([]Status, error) {
	return store.List(store.Reads(ctx, l.DB), claimFields, `select `+claimColumns+` from claims where job = $1 and path = $2 order by id`, job, l.DB.StoredPath(path))
}

// OfRun returns the claims of a run on files.
func (l *Claims) OfRun(ctx context.Context, run int64) ([]Status, error) {
	return store.List(store.Reads(ctx, l.DB), claimFields, `select `+claimColumns+` from claims where run = $1 and own = 0 order by id`, run)
}

// LeaveFiles cancels moving or deleting the files of a finished run before it is undone, because the undo may restore their old place.
func (l *Claims) LeaveFiles(ctx context.Context, run int64) error {
	return store.Exec(ctx, l.DB, `update claims set after = $1 where run = $2 and own = 0 and outcome <> ''`, AfterLeft, run)
}

// DisownFiles lets the contents of an undone run start new runs when they are dropped again. ModTime of each claim identifies the file
// that lies at its path now and starts no run. It is zero if there is no such file.
func (l *Claims) DisownFiles(ctx context.Context, claims []Status) error {
	return store.Write(ctx, l.DB, func(tx *store.Tx) error {
		for _, c := range claims {
			tx.Run(`update claims set after = $1, mod_time = $2 where id = $3 and run = $4 and own = 0 and outcome <> ''`,
				AfterUndone, store.Millis(c.ModTime), c.ID, c.Run)
		}
		return nil
	})
}

// PendingAfterMoves lists claims whose run has finished and whose file has not been dealt with. One without an
// outcome belongs to a run that was retried before that: nothing is done to its file any more, but an earlier try may
// have moved it.
func (l *Claims) PendingAfterMoves(ctx context.Context, limit int) ([]Status, error) {
	return store.List(store.Reads(ctx, l.DB), claimFields, `select `+claimColumns+` from claims where after = 'pending' order by id limit $1`, limit)
}

// FinishAfterMove records what became of a file: AfterDone and where it is now, AfterLeft, or AfterFailed
// with why; AfterNone for one whose run was retried. False: since c was read, its run was retried or somebody else
// has recorded it. What is to happen to the file may have changed, so only where it is now is recorded.
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
			// The run that was retried meanwhile waits for this: it needs its file.
			tx.Run(`update claims set after = case when outcome = '' then '' else after end, dest = $1 where id = $2 and after = 'pending' and run = $3`, dest, c.ID, c.Run)
		}
		return nil
	})
	return ended, err
}

// ClaimOutput marks a content as written by a run of the job itself, so that the job's watch ignores it.
func (l *Claims) ClaimOutput(ctx context.Context, a record.Attempt, c Claim) error {
	return store.Write(ctx, l.DB, func(tx *store.Tx) error {
		if _, err := record.CheckFence(tx, l.DB, a); err != nil {
			return err
		}

		// The claim of an unfinished run stays: that run took the content first.
		tx.Run(`insert into claims (job, path, hash, size, mod_time, run, generation, outcome, after, own) values ($1, $2, $3, $4, $5, $6, 1, $7, $8, 1)
			on conflict (job, path, hash) do update set run = excluded.run, outcome = excluded.outcome, after = excluded.after, own = 1, dest = '', error = ''
			where claims.outcome <> '' or claims.own = 1`,
			c.Job, l.DB.StoredPath(c.Path), c.Hash, c.Size, store.Millis(c.ModTime), a.Run, string(domain.OutcomeSuccess), AfterLeft)
		return nil
	})
}

// Release gives up contents that a run had claimed and continues without: the files were gone,
// or had changed. Dropped again, they get a run of their own.
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

// FileBack is the kind of the event that a file whose run failed is there again as it was.
const FileBack = "file.back"

// MarkReappeared records that a content whose run failed is there again, and says since when: what puts files back, as a sync
// does, must not have each of them tried again and again. False: the job has another definition by now, or the run is not
// kept any more, so that the content gets a run of its own. The notices are sent for the first content that is back of a job.
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

		// Only what was read: the owner may have had the run tried again meanwhile.
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

// BackGone records that a file which was back after it failed has gone again.
func (l *Claims) BackGone(ctx context.Context, c Status) error {
	return store.Exec(ctx, l.DB, `update claims set after = $1 where id = $2 and run = $3 and after = $4`, AfterDone, c.ID, c.Run, AfterBack)
}

// FailedAlike says whether a run that failed was one of the job as it is now. Of a run that is not kept any more nobody
// knows, nor can it be retried.
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

// The states of what happens to a file after its run.
const (
	AfterNone    = ""
	AfterPending = "pending" // the run has finished; the watcher acts
	AfterDone    = "done"    // moved or deleted
	AfterLeft    = "left"    // stays where it is, as configured
	AfterFailed  = "failed"  // could not be moved; tried again when it is seen again
	AfterBack    = "back"    // its run failed, and it is there again as it was: it waits for its owner, or for another job
	AfterUndone  = "undone"  // its run was undone; the file that lies there now needs no run, another file with this content does
)

// Status is a claim with the run that has it.
type Status struct {
	Claim
	ID, Run int64
	Outcome domain.Outcome // "" while the run is unfinished
	After   string
	Dest    string // where the file went
}
