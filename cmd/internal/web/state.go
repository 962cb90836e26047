package web

import (
	"context"
	"time"

	"rouse/agentdb/ledger"
	"rouse/cmd/internal/api"
)

func (s *Server) state(ctx context.Context) (api.State, error) {
	out := api.State{Now: api.At(time.Now()), Jobs: []api.JobState{}, Runs: []api.OpenRun{}}
	jobs, err := s.ledger.Jobs(ctx)
	if err != nil {
		return out, err
	}

	for _, j := range jobs {
		out.Jobs = append(out.Jobs, api.JobState{Name: j.Name, Hash: j.ScheduleHash, Anchor: api.At(j.Anchor), Watermark: api.At(j.Watermark)})
	}
	if out.Pauses, err = s.ledger.Pauses(ctx, time.Time{}); err != nil {
		return out, err
	}
	if out.Wakes, err = s.ledger.Wakes(ctx); err != nil {
		return out, err
	}

	// None is an empty list, not null.
	out.Pauses, out.Wakes = append([]ledger.Pause{}, out.Pauses...), append([]ledger.Wake{}, out.Wakes...)

	open, err := s.ledger.Unfinished(ctx)
	for _, run := range open {
		out.Runs = append(out.Runs, api.OpenRun{ID: id(run.ID), Job: run.Job, Agent: run.Agent, Trigger: run.Trigger, State: run.State, WaitingFor: run.WaitingFor,
			NotBefore: api.At(run.NotBefore), QueuedAt: api.At(run.QueuedAt), Attempt: run.Attempt, Interruptions: run.Interruptions})
	}

	return out, err
}
