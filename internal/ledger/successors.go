package ledger

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"rouse/internal/domain"
	"rouse/internal/ledger/store"
)

// Successor is a job that starts when a run of another job has ended.
type Successor struct {
	Job, Agent string
	After      string // job that it follows
	Outcomes   []domain.Outcome
}

// EndedRun is the ended run that a successor's run was queued for.
type EndedRun struct {
	Run        int64           `json:"run"`
	Job        string          `json:"job"`
	Outcome    domain.Outcome  `json:"outcome"`
	Summary    string          `json:"summary,omitempty"`
	Error      string          `json:"error,omitempty"`
	FinishedAt time.Time       `json:"finished_at"`
	Artifacts  []EndedArtifact `json:"artifacts,omitempty"`
}

// EndedArtifact is an artifact of an EndedRun.
type EndedArtifact struct {
	ID          int64  `json:"id"`
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
	Version     int    `json:"version"`
	Size        int64  `json:"size"` // bytes
	Hash        string `json:"hash"` // SHA-256, hexadecimal
}

// SetSuccessors replaces the successors with those of the current configuration. Successors of runs
// that have already ended do not change.
func (l *Ledger) SetSuccessors(ctx context.Context, all []Successor) error {
	known, err := followers(ctx, l.DB)
	if err != nil || slices.EqualFunc(known, sortedSuccessors(all), sameSuccessor) {
		return err // most reloads change no successor
	}

	return store.Write(ctx, l.DB, func(tx *store.Tx) error {
		tx.Run(`delete from followers`)
		for _, f := range all {
			outcomes, err := json.Marshal(f.Outcomes)
			if err != nil {
				return err
			}
			tx.Run(`insert into followers (after, job, agent, outcomes) values ($1, $2, $3, $4)`, f.After, f.Job, f.Agent, string(outcomes))
		}
		return nil
	})
}

// sortedSuccessors returns the successors in an order that does not depend on the collation of a
// database.
func sortedSuccessors(all []Successor) []Successor {
	return slices.SortedFunc(slices.Values(all), func(a, b Successor) int {
		return cmp.Or(strings.Compare(a.After, b.After), strings.Compare(a.Job, b.Job))
	})
}

func sameSuccessor(a, b Successor) bool {
	return a.After == b.After && a.Job == b.Job && a.Agent == b.Agent && slices.Equal(a.Outcomes, b.Outcomes)
}

func followers(ctx context.Context, db *store.DB) ([]Successor, error) {
	all, err := store.List(store.Reads(ctx, db), successorFields, `select after, job, agent, outcomes from followers`)
	return sortedSuccessors(all), err
}

func successorFields(f *Successor) []any {
	return []any{&f.After, &f.Job, &f.Agent, store.Decoded(&f.Outcomes)}
}

// FollowerKey returns the key of the run of job that follows a run. It ensures that only one such
// run exists, even if the first run ends several times.
func FollowerKey(run int64, job string) string { return fmt.Sprintf("after/%d/%s", run, job) }

// startFollowers queues the runs that follow a run, in the transaction that writes its outcome. A
// crash therefore leaves both or neither. If a run ends again after a manual retry, a job that has
// already followed it does not run again. Dry runs have no followers.
func startFollowers(tx *store.Tx, r Run, res Result, now time.Time) error {
	if r.Job == "" {
		return nil
	}
	all, err := store.List(tx, successorFields, `select after, job, agent, outcomes from followers where after = $1`, r.Job)
	all = slices.DeleteFunc(all, func(f Successor) bool { return !slices.Contains(f.Outcomes, res.Outcome) })
	if err != nil || len(all) == 0 {
		return err
	}

	var d TriggerDetail
	_ = json.Unmarshal(r.Detail, &d) // a dry run has a short detail and cannot be damaged
	if d.DryRun {
		return nil
	}

	ended := &EndedRun{Run: r.ID, Job: r.Job, Outcome: res.Outcome, Summary: res.Summary, Error: res.Error, FinishedAt: store.Instant(store.Millis(now))}
	if ended.Artifacts, err = endedArtifacts(tx, r.ID); err != nil {
		return err
	}
	detail, err := json.Marshal(TriggerDetail{After: ended})
	if err != nil {
		return err
	}

	for _, f := range sortedSuccessors(all) {
		request := Request{Job: f.Job, Agent: f.Agent, Trigger: domain.TriggerAfter, Detail: TriggerDetail{After: ended}}
		if _, err := insertRun(tx, now, request, FollowerKey(r.ID, f.Job), string(detail)); err != nil {
			return err
		}
	}
	return nil
}

// endedArtifacts returns the artifacts of a run that were not discarded.
func endedArtifacts(tx *store.Tx, run int64) ([]EndedArtifact, error) {
	return store.List(tx, func(a *EndedArtifact) []any {
		return []any{&a.ID, &a.Name, &a.Description, &a.Version, &a.Size, &a.Hash}
	}, `select id, name, description, version, size, hash from artifacts where run = $1 and discarded = 0 order by id`, run)
}
