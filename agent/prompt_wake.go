package agent

import (
	"context"
	"fmt"
	"strings"
	"time"

	"rouse/agentdb/ledger"
	"rouse/internal/domain"
)

// wakePrompt is the prompt of a wake (OSA-76). It is the same for
// every attempt at the run.
func (r *Runner) wakePrompt(ctx context.Context, t *attempt) (string, error) {
	last, err := r.lastEnded(ctx, t.run)
	if err != nil {
		return "", fmt.Errorf("what the agent did last cannot be read: %w", err)
	}
	return wakeText(t.run, *t.detail.Wake, last, t.zone), nil
}

// lastEnded is the latest run of an agent that had ended when another began; zero when there
// is none. A run that was skipped did nothing.
func (r *Runner) lastEnded(ctx context.Context, run ledger.Run) (ledger.Run, error) {
	f := ledger.RunFilter{Agent: run.Agent, State: domain.StateFinished, Limit: 20}
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
func wakeText(run ledger.Run, w ledger.WakeDetail, last ledger.Run, zone *time.Location) string {
	say := func(t time.Time) string { return t.In(zone).Format("Mon 2006-01-02 15:04:05 MST") }
	var s strings.Builder
	fmt.Fprintf(&s, "This run is a wake that %s planned on %s%s.\n", wakeSetBy(w), say(w.Asked), wakeOrigin(w))
	s.WriteString("This run begins fresh: you remember no earlier run and no conversation. What you know is in your database and your files.\n")
	fmt.Fprintf(&s, "Planned for: %s\nStarted:     %s", say(w.Planned), say(run.StartedAt))
	if late := run.StartedAt.Sub(w.Planned).Round(time.Minute); late > 0 {
		fmt.Fprintf(&s, " (%s late)", strings.TrimSuffix(late.String(), "0s"))
	}

	s.WriteString("\n")
	if last.ID == 0 {
		s.WriteString("No other run of yours has ended so far.\n")
	} else {
		fmt.Fprintf(&s, "Your last run to end was run %d%s: %s, on %s.\n", last.ID, describeJob(last), strings.ReplaceAll(string(last.Outcome), "_", " "), say(last.FinishedAt))
	}

	s.WriteString("The instructions for this run, word for word:\n\n")
	s.WriteString(w.Instructions)
	return s.String()
}

func wakeSetBy(w ledger.WakeDetail) string {
	switch w.ScheduledBy {
	case ledger.ByAgent:
		return "you"
	case ledger.ByUser:
		return "your owner"
	}
	return "the host"
}

// wakeOrigin says which run and job a wake goes back to.
func wakeOrigin(w ledger.WakeDetail) string {
	text := ""
	if w.AskedBy != 0 {
		text = fmt.Sprintf(" in run %d", w.AskedBy)
	}

	if w.Job != "" {
		text += ", in a chain that the job " + w.Job + " began"
	}
	return text
}

func describeJob(run ledger.Run) string {
	switch {
	case run.Job != "":
		return " (job " + run.Job + ")"
	case run.Trigger == domain.TriggerSelf:
		return " (a wake)"
	}
	return ""
}
