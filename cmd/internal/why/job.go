package why

import (
	"context"

	"rouse/cmd/internal/api"
)

// Why explains the last n occurrences of a job around a time, or until now if at is "".
func (x *Explainer) Why(ctx context.Context, job, at string, n int) (api.Why, error) {
	s := x.Setup()
	e := &explanation{Explainer: x, setup: s, name: job, job: s.Job(job), now: x.Ledger.Now(), zone: s.Config.Zone()}
	if err := e.parseAsked(at, n); err != nil {
		return api.Why{}, &api.Error{Message: err.Error(), Usage: true}
	}

	// Each step uses the lines of the previous steps.
	for _, step := range []func(context.Context) error{e.loadStanding, e.addRecorded, e.addUndecided, e.addUnrecorded, e.addOtherRuns, e.fillRuns} {
		if err := step(ctx); err != nil {
			return api.Why{}, err
		}
	}

	// A removed job is explained from its record. Without a record, the name is probably a typing
	// error.
	if e.job == nil && len(e.lines) == 0 {
		return api.Why{}, s.Known(job, "")
	}

	out := api.Why{Job: job, Zone: e.zone.String(), Notes: e.notes(ctx), Lines: make([]api.Explanation, 0, len(e.lines))}
	for _, l := range e.lines {
		out.Lines = append(out.Lines, l.Explanation)
	}

	var err error
	out.Between, err = e.timeline(ctx)
	return out, err
}
