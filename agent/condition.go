package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"rouse/agent/redact"
	"rouse/agentdb/ledger"
	"rouse/internal/domain"
	"rouse/internal/text"
)

// What is kept of a gate and of what it saw, in characters.
const (
	maxConditionName  = 80
	maxConditionValue = 200
)

// conditionTimeout bounds a gate that says nothing of it.
const conditionTimeout = 10 * time.Second

// conditionEventKind is the kind of the events that gates leave.
const conditionEventKind = "gate"

// conditionEvent is what a gate leaves in the record.
type conditionEvent struct {
	Gate  string `json:"gate"`
	Value string `json:"value,omitempty"`
	OK    bool   `json:"ok"`
	Error string `json:"error,omitempty"` // why it could not be checked
	Left  int    `json:"left"`            // gates that come after it; the last that holds opens the run
}

// conditionChecker asks the gates of one run.
type conditionChecker struct {
	*Runner
	run    ledger.Run
	task   task
	redact *redact.Redactor
	now    time.Time // the same for all gates
}

// checkConditions asks what has to hold before the run may cost anything. The first condition that
// does not hold ends the run as skipped, and one that cannot be checked is no answer: it
// ends the run as an error, to be tried again as the job's policy says.
func (r *Runner) checkConditions(ctx context.Context, run ledger.Run, a ledger.Attempt, t task) (res ledger.Result, closed bool, err error) {
	if len(t.job.When) == 0 || !checksConditions(run, t.detail) {
		return res, false, nil
	}

	if a.Number > 1 {
		if open, err := r.conditionsHeldBefore(ctx, run.ID); open || err != nil {
			return res, false, err
		}
	}

	q := conditionChecker{Runner: r, run: run, task: t, redact: redactor(t.secrets), now: time.Now()}
	for i, g := range t.job.When {
		name := q.describe(g)
		value, ok, err := q.check(ctx, g)
		if ctx.Err() != nil { // the run has to end, whatever was seen
			return res, false, context.Cause(ctx)
		}

		e := conditionEvent{Gate: name, Value: q.display(value, maxConditionValue), OK: ok != g.Not, Left: len(t.job.When) - 1 - i}
		if err != nil {
			e.Value, e.OK, e.Error = "", false, q.display(err.Error(), 2*maxConditionValue)
		}
		if err := q.record(ctx, e); err != nil {
			return res, false, err
		}

		switch {
		case e.Error != "":
			return failed(domain.OutcomeError, "gate: %s could not be checked (%s): %s", name, g.Where, e.Error), true, nil
		case !e.OK:
			return failed(domain.OutcomeSkipped, "gate: %s gave %s (%s)", name, e.Value, g.Where), true, nil
		}
	}

	return res, false, nil
}

// checksConditions says whether a run asks the gates of its job. What somebody handed over (a file, the
// changes in a folder) is not to be lost to a condition.
func checksConditions(run ledger.Run, d ledger.Detail) bool {
	return d.File == nil && len(d.Files) == 0 && d.Folder == "" && slices.Contains([]domain.Trigger{domain.TriggerSchedule, domain.TriggerManual, domain.TriggerAPI}, run.Trigger)
}

// conditionsHeldBefore says whether an earlier attempt got past the gates. What it has done since may
// well have made them false. An attempt that ended before they had answered did not: the
// next one asks.
func (r *Runner) conditionsHeldBefore(ctx context.Context, run int64) (bool, error) {
	var after int64
	for {
		events, err := r.ledger.Events(ctx, ledger.EventFilter{Run: run, After: after})
		if err != nil || len(events) == 0 {
			return false, err
		}

		for _, e := range events {
			after = e.ID
			switch e.Kind {
			case "step.started":
				return true, nil
			case conditionEventKind:
				var g conditionEvent
				if err := json.Unmarshal(e.Data, &g); err != nil {
					return false, fmt.Errorf("the record of a gate of run %d is damaged: %w", run, err)
				}
				if g.OK && g.Left == 0 {
					return true, nil
				}
			}
		}
	}
}

// check gives what a gate saw, and whether that is true. An error says why it saw nothing.
func (q conditionChecker) check(ctx context.Context, g Gate) (value string, ok bool, err error) {
	if g.Timeout <= 0 {
		g.Timeout = conditionTimeout
	}

	bounded, cancel := context.WithTimeout(ctx, g.Timeout)
	defer cancel()

	switch {
	case g.SQL != "":
		return q.checkSQL(bounded, g)
	case len(g.Command) > 0:
		return q.checkCommand(bounded, g)
	case g.HTTP != "":
		return q.checkHTTP(bounded, g)
	}

	return checkFileCondition(bounded, g)
}

// describe is how messages call a gate.
func (q conditionChecker) describe(g Gate) string {
	kind, text := "file", g.File
	switch {
	case g.SQL != "":
		kind, text = "sql", g.SQL
	case len(g.Command) > 0:
		kind, text = "command", strings.Join(g.Command, " ")
	case g.HTTP != "":
		// Secrets first: what is left of a URL after shortening may not be found any more.
		kind, text = "http", displayURL(q.redact.Replace(g.HTTP))
	}

	name := fmt.Sprintf(`%s "%s"`, kind, q.display(text, maxConditionName))
	if g.Not {
		return "not " + name
	}

	return name
}

func (q conditionChecker) record(ctx context.Context, e conditionEvent) error {
	data, err := json.Marshal(e)
	if err != nil {
		return err
	}
	return q.ledger.AppendEvents(ctx, ledger.Event{Run: q.run.ID, Job: q.run.Job, Kind: conditionEventKind, Data: data})
}

// display makes of any text one line that can be shown and stored. Secrets are looked for
// before and after, for the cleaning can both tear one apart and put one together.
func (q conditionChecker) display(said string, most int) string {
	return text.Truncate(q.redact.Replace(oneLine(q.redact.Replace(said))), most)
}
