package ledger

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"rouse/agentdb/sqlite"
)

// FileBack is the kind of the event that a file whose run failed is there again as it was.
const FileBack = "file.back"

// MarkBack records that a content whose run failed is there again, and says since when: what puts files back, as a sync
// does, must not have each of them tried again and again. False: the job has another definition by now, or the run is not
// kept any more, so that the content gets a run of its own. The notices are sent for the first content that is back of a job.
func (l *Ledger) MarkBack(ctx context.Context, c ClaimStatus, modified time.Time, definition string, notices []Notice) (since time.Time, back bool, err error) {
	told, err := json.Marshal(map[string]any{"path": c.Path, "hash": c.Hash, "run": c.Run})
	if err != nil {
		return time.Time{}, false, err
	}

	err = l.do(ctx, func(tx *sqlite.Tx) error {
		since, back = l.now().Truncate(time.Millisecond), false
		same, err := failedAlike(tx, c.Run, definition)
		if err != nil || !same {
			return err
		}
		back = true

		var others, known int
		if err := scan(tx, []any{&others, &known}, `select count(*), coalesce(max(case when id = $1 then 1 else 0 end), 0) from claims where job = $2 and after = $3`, c.ID, c.Job, AfterBack); err != nil {
			return err
		}
		if known > 0 {
			first, err := timeOf(tx, `select coalesce(max(at), 0) from events where run = 0 and job = $1 and kind = $2 and data = $3`, c.Job, FileBack, string(told))
			if !first.IsZero() {
				since = first
			}
			return err
		}

		// Only what was read: the owner may have had the run tried again meanwhile.
		marked, err := changed(tx, `update claims set after = $1, mod_time = $2 where id = $3 and run = $4 and outcome = $5 and after = $6`,
			AfterBack, ms(modified), c.ID, c.Run, string(c.Outcome), c.After)
		if err != nil || !marked {
			return err
		}

		if others == 0 {
			addNotices(tx, since, notices...)
		}
		return addEvent(tx, Event{Job: c.Job, At: since, Kind: FileBack, Data: told}, nil)
	})
	return since, back, err
}

// BackGone records that a file which was back after it failed has gone again.
func (l *Ledger) BackGone(ctx context.Context, c ClaimStatus) error {
	return l.exec(ctx, `update claims set after = $1 where id = $2 and run = $3 and after = $4`, AfterDone, c.ID, c.Run, AfterBack)
}

// failedAlike says whether a run that failed was one of the job as it is now. Of a run that is not kept any more nobody
// knows, nor can it be retried.
func failedAlike(tx *sqlite.Tx, run int64, definition string) (bool, error) {
	text, known, err := orFalse(value[[]byte](tx, `select detail from runs where id = $1`, run))
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
