package simulate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/scheduler"
	"rouse/scheduler/dispatch"
)

// maxOccurrences bounds what one simulation holds in memory, and maxDecisions how long it takes if it keeps the occurrences of one job.
const (
	maxOccurrences = 1_000_000
	maxDecisions   = 10 * maxOccurrences
)

// Options say what to simulate. From is the daemon's start.
type Options struct {
	Jobs     []scheduler.Job
	Job      string // whose occurrences are wanted, "" for all; the other jobs are played, as they take the same lanes
	From, To time.Time
	// Most ends the simulation before To, after so many occurrences or a hundred times as many decisions of all jobs; 0: only To does.
	Most int
	// Events are what happens to the daemon and its clock, in the order in which it happens.
	Events []Event
	// Runtime is how long a run of a job takes, or a run of an agent without a job ("").
	Runtime func(job, agent string) time.Duration
	// Policy is what a job wants of its runs; nil: what a job without settings wants.
	Policy             func(job string) dispatch.Policy
	Runs, RunsPerAgent int // lanes; 0 means 4 and 1
	// Blocked says why the runs of a job are blocked and never start, "" when they are not; may be nil.
	Blocked func(job, agent string) string

	// What the ledger holds at From. A job without a state is as old as the simulation.
	States map[string]ledger.JobState
	Pauses []ledger.Pause
	Wakes  []ledger.Wake
	Open   []ledger.Run // unfinished, oldest first
}

// Event is something that happens to the daemon or to its clock.
type Event struct {
	At   time.Time // as the wall clock shows just before
	Kind EventKind
	By   time.Duration // of Step: how far the clock is moved; forward when positive
}

// EventKind is a kind of Event.
type EventKind int

// The events. A machine that sleeps is a step forward.
const (
	Down EventKind = iota // no daemon runs from here on
	Up                    // one runs again
	Step                  // the wall clock is moved
)

// Occurrence is what becomes of one due instant, or of one planned wake.
type Occurrence struct {
	Job, Agent, Source string
	Nominal, Actual    time.Time
	Decision           domain.Decision
	Reason             string
	Run                int64 // a number of this simulation, 0 when nothing runs
	Started, Finished  time.Time
	Outcome            domain.Outcome // "" while it runs, or waits
	Through            time.Time      // of a row that stands for many instants
	Instants           int
}

// Run simulates the time from From to To. It calls progress now and then, unless it is nil.
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

		// Steps of the clock can bring back a time before To, so all events are played.
		at, ok := w.next()
		if !ok || (at.After(o.To) && len(w.events) == 0) {
			w.now = o.To
			break
		}
		if o.Most > 0 && (len(w.out) >= o.Most || w.decided >= 100*o.Most) {
			break
		}

		w.advance(at)
		if len(w.out) > maxOccurrences || len(w.ready) > maxOccurrences || w.decided > maxDecisions {
			return nil, w.tooMany()
		}
	}

	if progress != nil {
		progress(w.now)
	}
	var out []Occurrence
	for _, occurrence := range w.out {
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

	// Outages after the end change nothing; a step of the clock may lead back before it.
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
