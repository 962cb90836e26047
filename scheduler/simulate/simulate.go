package simulate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/pause"
	"rouse/internal/ledger/wake"
	"rouse/scheduler"
	"rouse/scheduler/dispatch"
)

// maxOccurrences limits the memory of a simulation. maxDecisions limits its duration if it keeps
// only the occurrences of one job.
const (
	maxOccurrences = 1_000_000
	maxDecisions   = 10 * maxOccurrences
)

// Options configure a simulation. From is the start of the daemon.
type Options struct {
	Jobs []scheduler.Job
	// Job selects the job in the result, or "" for all jobs. Other jobs are simulated too, because
	// they use the same lanes.
	Job      string
	From, To time.Time
	// Most ends the simulation before To, after that many occurrences or after 100 times as many
	// decisions. Zero means no limit.
	Most int
	// Events are outages and clock steps, in chronological order.
	Events []Event
	// Runtime returns the runtime of a run. The job is "" for an agent's run without a job.
	// Optional; the default is 0.
	Runtime func(job, agent string) time.Duration
	// Policy returns the policy of a job. Optional; the default is the policy of a job without
	// settings.
	Policy func(job string) dispatch.Policy
	// Runs and RunsPerAgent are numbers of lanes. The defaults are 4 and 1.
	Runs, RunsPerAgent int
	// Blocked returns the reason why the runs of a job never start, or "" if they can. Optional.
	Blocked func(job, agent string) string

	// The state of the ledger at From. A job without a state is created at From.
	States map[string]ledger.JobState
	Pauses []pause.Pause
	Wakes  []wake.Wake
	Open   []ledger.Run // unfinished runs, oldest first
}

// Event is an outage or a clock step.
type Event struct {
	At   time.Time // wall clock time just before the event
	Kind EventKind
	// By is the amount by which Step moves the clock. It is positive for a step forward.
	By time.Duration
}

// EventKind is the kind of an Event.
type EventKind int

// The kinds of events. A suspended machine is a step forward.
const (
	Down EventKind = iota // the daemon stops
	Up                    // the daemon starts
	Step                  // the wall clock is set
)

// Occurrence is the result of a due instant or planned wake.
type Occurrence struct {
	Job, Agent, Source string
	Nominal, Actual    time.Time
	Decision           domain.Decision
	Reason             string
	// Run is the number of the run in this simulation. It is 0 if there is no run.
	Run               int64
	Started, Finished time.Time
	Outcome           domain.Outcome // "" if not finished
	// Through is set for a row that represents several instants.
	Through  time.Time
	Instants int
}

// Run simulates the time from From to To. It calls progress periodically; progress may be nil. It
// returns an error if the options are inconsistent, if there are too many occurrences, or if ctx
// ends.
func Run(ctx context.Context, o Options, progress func(now time.Time)) ([]Occurrence, error) {
	if err := o.check(); err != nil {
		return nil, err
	}

	w := newWorld(o)
	w.startDaemon()

	for turns := 0; ; turns++ {
		if turns%1024 == 0 {
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			if progress != nil {
				progress(w.now)
			}
		}

		// A clock step may lead back to a time before To, so all events must be played.
		at, ok := w.next()
		if !ok || (at.After(o.To) && len(w.events) == 0) {
			w.now = o.To
			break
		}
		if o.Most > 0 && (len(w.record.kept) >= o.Most || w.record.decided >= 100*o.Most) {
			break
		}

		w.advance(at)
		if len(w.record.kept) > maxOccurrences || len(w.ready) > maxOccurrences || w.record.decided > maxDecisions {
			return nil, w.tooMany()
		}
	}

	if progress != nil {
		progress(w.now)
	}
	var out []Occurrence
	for _, occurrence := range w.record.kept {
		if o.Job == "" || occurrence.Job == o.Job {
			out = append(out, *occurrence)
		}
	}

	slices.SortStableFunc(out, func(a, b Occurrence) int { return a.Nominal.Compare(b.Nominal) })
	return out, nil
}

func (o *Options) check() error {
	if !o.To.After(o.From) {
		return errors.New("the simulation ends before it begins")
	}

	// Outages after the end have no effect. A clock step may lead back before the end.
	o.Events = slices.Clone(o.Events)
	for n := len(o.Events); n > 0 && o.Events[n-1].Kind != Step && o.Events[n-1].At.After(o.To); n-- {
		o.Events = o.Events[:n-1]
	}

	up, now := true, o.From
	for _, e := range o.Events {
		switch {
		case e.At.Before(now):
			return fmt.Errorf("what happens at %s comes after %s", e.At.Format(time.RFC3339), now.Format(time.RFC3339))
		case e.Kind == Down && !up, e.Kind == Up && up:
			return fmt.Errorf("at %s an outage begins or ends within another", e.At.Format(time.RFC3339))
		case e.Kind == Step && !up:
			return fmt.Errorf("at %s the clock is moved while no daemon runs: move the end of the outage instead", e.At.Format(time.RFC3339))
		}

		now = e.At.Add(e.By)
		if e.Kind != Step {
			up = e.Kind == Up
		}
	}

	if o.Runtime == nil {
		o.Runtime = func(string, string) time.Duration { return 0 }
	}

	if o.Policy == nil {
		o.Policy = func(string) dispatch.Policy { return dispatch.Policy{Resume: true} }
	}

	if o.Blocked == nil {
		o.Blocked = func(string, string) string { return "" }
	}

	return nil
}
