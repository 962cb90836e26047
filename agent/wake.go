package agent

import (
	"context"
	"fmt"
	"strings"
	"time"

	"rouse/agentdb/ledger"
	"rouse/internal/domain"
	"rouse/scheduler/schedule"
)

// Limits are those of the wakes that an agent plans; false when it plans none.
func (r *Runner) Limits(agent string) (schedule.Limits, bool) {
	a, ok := r.plan.Load().Agents[agent]
	if !ok || a.SelfScheduling == nil {
		return schedule.Limits{}, false
	}
	return *a.SelfScheduling, true
}

// begun is the job at the beginning of a wake's chain, nil when it is no longer configured
// for the same agent.
func (p Plan) begun(run ledger.Run, d ledger.Detail) *Job {
	if d.Wake == nil || run.Job != "" {
		return nil
	}

	job, ok := p.Jobs[d.Wake.Job]
	if !ok || job.Agent != run.Agent {
		return nil
	}
	return &job
}

// ofWake stands for the job in notices of a wake: it is told of as the job is that its chain
// goes back to, and without one its failures are told. Titles name the agent: the job's own
// would speak of work that this run did not do.
func (p Plan) ofWake(begun *Job) Job {
	if begun != nil {
		job := Job{Name: begun.Name, Notify: begun.Notify}
		job.Notify.Title = ""
		return job
	}
	on := []string{string(domain.OutcomeError), string(domain.OutcomeTimeout), string(domain.OutcomeBudget), string(domain.OutcomeInterrupted), string(domain.StateWaiting)}
	return Job{Notify: Notify{On: on, Channels: p.Channels[:min(1, len(p.Channels))]}}
}

// wakePrompt is what an agent is told when its alarm goes off (OSA-76). It is the same for
// every attempt at the run.
func (r *Runner) wakePrompt(ctx context.Context, run ledger.Run, t task) (string, error) {
	last, err := r.lastEnded(ctx, run)
	if err != nil {
		return "", fmt.Errorf("what the agent did last cannot be read: %w", err)
	}
	return wakeText(run, *t.detail.Wake, last, t.zone), nil
}

// lastEnded is the latest run of an agent that had ended when another began; zero when there
// is none. A run that was skipped did nothing.
func (r *Runner) lastEnded(ctx context.Context, run ledger.Run) (ledger.Run, error) {
	f := ledger.Filter{Agent: run.Agent, State: domain.StateFinished, Limit: 20}
	for {
		runs, err := r.ledger.Runs(ctx, f)
		if err != nil || len(runs) == 0 {
			return ledger.Run{}, err
		}

		var last ledger.Run
		for _, old := range runs {
			f.Before = old.ID
			if old.ID != run.ID && old.Outcome != domain.OutcomeSkipped && !old.FinishedAt.After(run.StartedAt) && old.FinishedAt.After(last.FinishedAt) {
				last = old
			}
		}
		if last.ID != 0 {
			return last, nil
		}

		f.Limit = 1000
	}
}

// wakeText words the prompt. The instructions come last and as they are: nothing that
// follows can be taken for a part of them.
func wakeText(run ledger.Run, w ledger.Wake, last ledger.Run, zone *time.Location) string {
	if zone == nil {
		zone = time.UTC
	}

	say := func(t time.Time) string { return t.In(zone).Format("Mon 2006-01-02 15:04:05 MST") }
	var s strings.Builder
	fmt.Fprintf(&s, "You were woken by an alarm that %s set on %s%s.\n", whoSet(w), say(w.Asked), origin(w))
	s.WriteString("This run begins fresh: you remember no earlier run and no conversation. What you know is in your database and your files.\n")
	fmt.Fprintf(&s, "Planned for: %s\nStarted:     %s", say(w.Planned), say(run.StartedAt))
	if late := run.StartedAt.Sub(w.Planned).Round(time.Minute); late > 0 {
		fmt.Fprintf(&s, " (%s late)", strings.TrimSuffix(late.String(), "0s"))
	}

	s.WriteString("\n")
	if last.ID == 0 {
		s.WriteString("No other run of yours has ended so far.\n")
	} else {
		fmt.Fprintf(&s, "Your last run to end was run %d%s: %s, on %s.\n", last.ID, ofJob(last), strings.ReplaceAll(string(last.Outcome), "_", " "), say(last.FinishedAt))
	}

	s.WriteString("The instructions for this run, word for word:\n\n")
	s.WriteString(w.Instructions)
	return s.String()
}

func whoSet(w ledger.Wake) string {
	switch w.ScheduledBy {
	case ledger.ByAgent:
		return "you"
	case ledger.ByUser:
		return "your owner"
	}
	return "the host"
}

// origin says what the alarm goes back to.
func origin(w ledger.Wake) string {
	text := ""
	if w.AskedBy != 0 {
		text = fmt.Sprintf(" in run %d", w.AskedBy)
	}

	if w.Job != "" {
		text += ", in a chain that the job " + w.Job + " began"
	}
	return text
}

func ofJob(run ledger.Run) string {
	switch {
	case run.Job != "":
		return " (job " + run.Job + ")"
	case run.Trigger == domain.TriggerSelf:
		return " (an alarm)"
	}
	return ""
}
