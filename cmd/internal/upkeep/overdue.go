package upkeep

import (
	"context"
	"time"

	"rouse/internal/domain"
	"rouse/internal/ledger/incident"
	"rouse/internal/ledger/runs"
)

// overdueLook is the maximum interval between checks, because the configuration and the clock can
// change.
const overdueLook = 30 * time.Second

// WatchOverdue records overdue jobs until ctx ends.
func (k *Keeper) WatchOverdue(ctx context.Context) error {
	for {
		next, err := k.RecordOverdue(ctx, k.Ledger.Now())
		if err != nil && ctx.Err() == nil {
			k.Logger.Error("cannot check for jobs without a success; trying again", "error", err)
		}

		wait := overdueLook
		if !next.IsZero() {
			wait = min(wait, max(next.Sub(k.Ledger.Now()), time.Second))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

// RecordOverdue updates the incidents of overdue jobs. It returns the end of the next window, if
// any.
func (k *Keeper) RecordOverdue(ctx context.Context, now time.Time) (next time.Time, err error) {
	s := k.Setup()
	open, err := k.Ledger.Incidents.List(ctx, incident.Filter{Limit: maxOpenIncidents})
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
		o, due, err := k.Explainer.Overdue(ctx, s, j, now)
		if err != nil {
			return next, err
		}
		if next = domain.Earlier(next, due); o == nil {
			continue
		}

		closing[name] = false
		record := incident.Overdue{Job: name, Agent: j.Agent, Missed: o.Missed, Why: o.Why, Notices: k.Runner.Notices.OverdueNotices(name, time.Duration(j.ExpectSuccessWithin), o.Due, o.Why)}
		last, err := k.Ledger.Runs.List(ctx, runs.Filter{Job: name, Limit: 1})
		if err != nil {
			return next, err
		}
		if len(last) > 0 {
			record.LastRun = last[0].ID
		}
		if err := k.Ledger.Incidents.RecordOverdue(ctx, record, now); err != nil {
			return next, err
		}
	}

	for job, gone := range closing {
		if gone {
			if err := k.Ledger.Incidents.CloseOverdue(ctx, job, now); err != nil {
				return next, err
			}
		}
	}
	return next, nil
}

// maxOpenIncidents is the maximum number of open incidents to read.
const maxOpenIncidents = 1000
