package daemon

import (
	"context"
	"fmt"
	"time"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/config"
	"rouse/cmd/internal/plan"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/text"
)

// overdueLook is the maximum interval between two checks, because the configuration and the clock can change.
const overdueLook = 30 * time.Second

// overdueJob is a job that has not succeeded within expect_success_within.
type overdueJob struct {
	due    time.Time // end of the last missed window
	missed int       // number of missed windows
	why    string
}

// watchOverdue records overdue jobs until ctx ends.
func (d *Daemon) watchOverdue(ctx context.Context) error {
	for {
		next, err := d.recordOverdue(ctx, d.ledger.Now())
		if err != nil && ctx.Err() == nil {
			d.log.Error("cannot check for jobs without a success; trying again", "error", err)
		}

		wait := overdueLook
		if !next.IsZero() {
			wait = min(wait, max(next.Sub(d.ledger.Now()), time.Second))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

// recordOverdue updates the incidents of overdue jobs. It returns the end of the next window, if any.
func (d *Daemon) recordOverdue(ctx context.Context, now time.Time) (next time.Time, err error) {
	s := d.Current()
	open, err := d.ledger.Incidents(ctx, ledger.IncidentFilter{Limit: maxOpenIncidents})
	if err != nil {
		return next, err
	}
	closing := map[string]bool{}
	for _, i := range open {
		closing[i.Job] = closing[i.Job] || i.Kind == domain.KindOverdue
	}

	for i := range s.Config.Jobs {
		j := &s.Config.Jobs[i]
		name := string(j.Name)
		o, due, err := d.overdue(ctx, s, j, now)
		if err != nil {
			return next, err
		}
		if next = domain.Earlier(next, due); o == nil {
			continue
		}

		closing[name] = false
		record := ledger.Overdue{Job: name, Agent: j.Agent, Missed: o.missed, Why: o.why, Notices: d.runner.OverdueNotices(name, time.Duration(j.ExpectSuccessWithin), o.due, o.why)}
		last, err := d.ledger.Runs(ctx, ledger.RunFilter{Job: name, Limit: 1})
		if err != nil {
			return next, err
		}
		if len(last) > 0 {
			record.LastRun = last[0].ID
		}
		if err := d.ledger.RecordOverdue(ctx, record, now); err != nil {
			return next, err
		}
	}

	for job, gone := range closing {
		if gone {
			if err := d.ledger.CloseOverdue(ctx, job, now); err != nil {
				return next, err
			}
		}
	}
	return next, nil
}

// overdue returns an overdue job, or nil, and the end of the job's next window. Before the first success, the windows begin
// when the ledger recorded the schedule, or else when this process started.
func (d *Daemon) overdue(ctx context.Context, s *plan.Setup, j *config.Job, now time.Time) (*overdueJob, time.Time, error) {
	name, within := string(j.Name), time.Duration(j.ExpectSuccessWithin)
	if within == 0 || !config.On(j.Enabled) || s.Plan == nil || s.Plan.Runner.Jobs[name].Name == "" {
		return nil, time.Time{}, nil
	}

	since, err := d.ledger.LastDone(ctx, name)
	why := "The last success was at " + api.LocalTime(since, s.Config.Zone())
	if err == nil && since.IsZero() {
		since, why = d.startedAt, "It has never succeeded"
		var st ledger.JobState
		if st, _, err = d.ledger.JobState(ctx, name); !st.Anchor.IsZero() {
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

	o := &overdueJob{missed: missed, due: next.Add(-within), why: why}
	more, err := d.whyOverdue(ctx, j, now)
	o.why += more
	return o, next, err
}

// whyOverdue returns the known cause: a pause, or the outcome of the last run.
func (d *Daemon) whyOverdue(ctx context.Context, j *config.Job, now time.Time) (string, error) {
	pauses, err := d.ledger.Pauses(ctx, now)
	if err != nil {
		return "", err
	}
	if p, ok := ledger.Paused(pauses, string(j.Name), j.Agent, now); ok {
		return "; it is paused: " + pausedWhy(p), nil
	}

	last, err := d.ledger.Runs(ctx, ledger.RunFilter{Job: string(j.Name), Limit: 1})
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

// checkOverdue reports the jobs that have not succeeded in time.
func (d *Daemon) checkOverdue(ctx context.Context, s *plan.Setup) (out []api.Check) {
	now := d.ledger.Now()
	for i := range s.Config.Jobs {
		name := string(s.Config.Jobs[i].Name)
		o, _, err := d.overdue(ctx, s, &s.Config.Jobs[i], now)
		if err != nil {
			out = append(out, undone("success of "+name, err))
		} else if o != nil {
			out = append(out, failed("success of "+name, fmt.Sprintf("none within %s. %s", s.Config.Jobs[i].ExpectSuccessWithin, o.why), "see rouse why "+name))
		}
	}
	return out
}
