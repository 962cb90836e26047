package why

import (
	"context"
	"fmt"
	"strings"
	"time"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/config"
	"rouse/cmd/internal/plan"
	"rouse/internal/ledger"
	"rouse/internal/ledger/pause"
	"rouse/internal/ledger/runs"
	"rouse/internal/text"
)

// OverdueJob is a job that has not succeeded within expect_success_within.
type OverdueJob struct {
	Due    time.Time // end of the last missed window
	Missed int       // number of missed windows
	Why    string
}

// Overdue returns an overdue job and the end of the job's next window. The job is nil if it is not
// overdue. Before the first success, the windows begin when the ledger recorded the schedule, or
// else when this process started.
func (x *Explainer) Overdue(ctx context.Context, s *plan.Setup, j *config.Job, now time.Time) (*OverdueJob, time.Time, error) {
	name, within := string(j.Name), time.Duration(j.ExpectSuccessWithin)
	if within == 0 || !config.On(j.Enabled) || s.Plan == nil || s.Plan.Runner.Jobs[name].Name == "" {
		return nil, time.Time{}, nil
	}

	since, err := x.Ledger.Runs.LastDone(ctx, name)
	why := "The last success was at " + api.LocalTime(since, s.Config.Zone())
	if err == nil && since.IsZero() {
		since, why = x.StartedAt, "It has never succeeded"
		var st ledger.JobState
		if st, _, err = x.Ledger.JobState(ctx, name); !st.Anchor.IsZero() {
			since = st.Anchor
		}
	}
	if err != nil {
		return nil, time.Time{}, err
	}
	missed := max(int(now.Sub(since)/within), 0)
	next := since.Add(time.Duration(missed+1) * within)
	if missed == 0 {
		return nil, next, nil
	}

	o := &OverdueJob{Missed: missed, Due: next.Add(-within), Why: why}
	more, err := x.whyOverdue(ctx, j, now)
	o.Why += more
	return o, next, err
}

// whyOverdue returns the known cause: a pause, or the outcome of the last run.
func (x *Explainer) whyOverdue(ctx context.Context, j *config.Job, now time.Time) (string, error) {
	pauses, err := x.Ledger.Pauses.List(ctx, now)
	if err != nil {
		return "", err
	}
	if p, ok := pause.Paused(pauses, string(j.Name), j.Agent, now); ok {
		return "; it is paused: " + PauseReason(p), nil
	}

	last, err := x.Ledger.Runs.List(ctx, runs.Filter{Job: string(j.Name), Limit: 1})
	switch {
	case err != nil:
		return "", err
	case len(last) == 0:
		return "; it has not run", nil
	case last[0].Outcome == "":
		return fmt.Sprintf("; run %d is %s", last[0].ID, last[0].State), nil
	case last[0].Outcome.Done():
		return fmt.Sprintf("; the last run was run %d, and none has started since", last[0].ID), nil
	}
	return fmt.Sprintf("; run %d ended as %s: %s", last[0].ID, last[0].Outcome, text.Truncate(text.OneLine(last[0].Error), 200)), nil
}

// PauseReason returns the reason of a pause, with its scope if it covers more than one job.
func PauseReason(p pause.Pause) string {
	if p.Scope == pause.Job {
		return p.Reason
	}
	return strings.TrimSuffix(api.ScopeText(p.Scope, p.Name)+": "+p.Reason, ": ")
}
