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

// How much of a condition and of its value is recorded, in characters.
const (
	maxConditionName  = 80
	maxConditionValue = 500
)

// conditionTimeout is for conditions without a timeout of their own.
const conditionTimeout = 10 * time.Second

// conditionEventKind and the JSON keys of conditionEvent are older than the word condition; they
// stay, for they are in ledgers.
const conditionEventKind = "gate"

// conditionEvent records what a condition gave.
type conditionEvent struct {
	Gate  string `json:"gate"`
	Value string `json:"value,omitempty"`
	OK    bool   `json:"ok"`
	Error string `json:"error,omitempty"` // why it could not be checked
	Left  int    `json:"left"`            // conditions that come after it; once the last holds, the run may begin
}

// conditionChecker checks the conditions of one run.
type conditionChecker struct {
	*Runner
	task   *attempt
	redact *redact.Redactor
	now    time.Time // the same for all conditions
}

// checkConditions checks what has to hold before the run may cost anything. The first condition that
// does not hold ends the run as skipped, and one that cannot be checked is no answer: it
// ends the run as an error, to be tried again as the job's policy says.
func (r *Runner) checkConditions(ctx context.Context, t *attempt) error {
	if len(t.job.When) == 0 || !checksConditions(t.run, t.detail) {
		return nil
	}

	if t.a.Number > 1 {
		if open, err := r.conditionsHeldBefore(ctx, t.run.ID); open || err != nil {
			return err
		}
	}

	q := conditionChecker{Runner: r, task: t, redact: t.redactor(), now: time.Now()}
	for i, g := range t.job.When {
		name := q.describe(g)
		value, ok, err := q.check(ctx, g)
		if ctx.Err() != nil { // the run has to end, whatever was seen
			return context.Cause(ctx)
		}

		e := conditionEvent{Gate: name, Value: q.display(value, maxConditionValue), OK: ok != g.Not, Left: len(t.job.When) - 1 - i}
		if err != nil {
			e.Value, e.OK, e.Error = "", false, q.display(err.Error(), maxConditionValue)
		}
		// Recorded before it decides: a later attempt finds out from it that they held.
		if err := q.record(ctx, e); err != nil {
			return err
		}

		switch {
		case e.Error != "":
			return endEarly(domain.OutcomeError, "gate: %s could not be checked (%s): %s", name, g.Where, e.Error)
		case !e.OK:
			return endEarly(domain.OutcomeSkipped, "gate: %s gave %s (%s)", name, e.Value, g.Where)
		}
	}

	return nil
}

// checksConditions says whether the conditions of its job apply to a run. What somebody handed over
// (a file, the changes in a folder) must not be lost to a condition.
func checksConditions(run ledger.Run, d ledger.Detail) bool {
	return d.File == nil && len(d.Files) == 0 && d.Folder == "" && slices.Contains([]domain.Trigger{domain.TriggerSchedule, domain.TriggerBackfill, domain.TriggerManual, domain.TriggerAPI, domain.TriggerWebhook, domain.TriggerAfter}, run.Trigger)
}

// conditionsHeldBefore says whether an earlier attempt got past the conditions. They are not checked
// again then: what that attempt did may well have made them false.
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
					return false, fmt.Errorf("the record of a condition of run %d is damaged: %w", run, err)
				}
				// The daemon may have ended between two conditions: only the last one counts.
				if g.OK && g.Left == 0 {
					return true, nil
				}
			}
		}
	}
}

// check gives the value of a condition, and whether it counts as true. An error says why there is none.
func (q conditionChecker) check(ctx context.Context, g Condition) (value string, ok bool, err error) {
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
	case g.That != "":
		return q.checkExpression(bounded, g)
	}

	return checkFileCondition(bounded, q.task.boundary, g)
}

// describe names a condition in messages.
func (q conditionChecker) describe(g Condition) string {
	kind, text := "file", g.File
	switch {
	case g.SQL != "":
		kind, text = "sql", g.SQL
	case len(g.Command) > 0:
		kind, text = "command", strings.Join(g.Command, " ")
	case g.That != "":
		kind, text = "that", g.That
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
	return q.ledger.AppendEvents(ctx, ledger.Event{Run: q.task.run.ID, Job: q.task.run.Job, Kind: conditionEventKind, Data: data})
}

// display makes of any text one line that can be shown and stored. Secrets are looked for
// before and after, for the cleaning can both tear one apart and put one together.
func (q conditionChecker) display(said string, most int) string {
	return text.Truncate(q.redact.Replace(oneLine(q.redact.Replace(said))), most)
}
