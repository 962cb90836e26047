package web

import (
	"context"
	"net/http"
	"time"

	"rouse/agentdb/ledger"
)

// State is what a simulation begins with: how far the jobs have been dealt with, what is
// planned, paused, and not finished yet.
type State struct {
	Now    Time           `json:"now"`
	Jobs   []JobState     `json:"jobs"`
	Pauses []ledger.Pause `json:"pauses"`
	Slots  []ledger.Slot  `json:"slots"`
	Runs   []OpenRun      `json:"runs"`
}

// OpenRun is a run that is not finished.
type OpenRun struct {
	ID            string `json:"id"`
	Job           string `json:"job"`
	Agent         string `json:"agent"`
	Trigger       string `json:"trigger"`
	State         string `json:"state"`
	WaitingFor    string `json:"waiting_for"`
	NotBefore     Time   `json:"not_before"`
	QueuedAt      Time   `json:"queued_at"`
	Attempt       int    `json:"attempt"`
	Interruptions int    `json:"interruptions"`
}

// JobState is how far a job's schedule has been dealt with.
type JobState struct {
	Name      string `json:"name"`
	Hash      string `json:"hash"`
	Anchor    Time   `json:"anchor"`
	Watermark Time   `json:"watermark"`
}

func (s *server) state(r *http.Request) (any, error) { return s.readState(r.Context()) }

func (s *server) readState(ctx context.Context) (State, error) {
	out := State{Now: Time{time.Now()}, Jobs: []JobState{}, Runs: []OpenRun{}}
	jobs, err := s.ledger.Jobs(ctx)
	if err != nil {
		return out, err
	}
	for _, j := range jobs {
		out.Jobs = append(out.Jobs, JobState{j.Name, j.ScheduleHash, Time{j.Anchor}, Time{j.Watermark}})
	}
	if out.Pauses, err = s.ledger.Pauses(ctx, time.Time{}); err != nil {
		return out, err
	}
	if out.Slots, err = s.ledger.Slots(ctx); err != nil {
		return out, err
	}
	open, err := s.ledger.Unfinished(ctx)
	for _, run := range open {
		out.Runs = append(out.Runs, OpenRun{id(run.ID), run.Job, run.Agent, string(run.Trigger), string(run.State), run.WaitingFor,
			Time{run.NotBefore}, Time{run.QueuedAt}, run.Attempt, run.Interruptions})
	}
	return out, err
}
