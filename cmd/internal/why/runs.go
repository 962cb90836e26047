package why

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"rouse/cmd/internal/api"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/event"
	"rouse/internal/ledger/record"
	"rouse/internal/text"
)

// fillRuns adds the results of the runs, and a line for each further attempt.
func (e *explanation) fillRuns(ctx context.Context) error {
	var ids []int64
	for _, l := range e.lines {
		if l.Run != "" {
			id, err := strconv.ParseInt(l.Run, 10, 64)
			if err != nil {
				return err
			}
			ids = append(ids, id)
		}
	}
	runs, err := e.Ledger.Runs.ByID(ctx, ids)
	if err != nil {
		return err
	}

	byID := map[string]ledger.Run{}
	for id, r := range runs {
		byID[strconv.FormatInt(id, 10)] = r
	}
	for i := range len(e.lines) { // lines added by retries already have their state
		r, kept := byID[e.lines[i].Run]
		switch {
		case e.lines[i].Run == "":
		case !kept:
			e.lines[i].addReason("the run itself is not kept any more")
		default:
			if err := e.fillRun(ctx, i, r); err != nil {
				return err
			}
		}
	}
	e.sort()
	return nil
}

// fillRun adds the result of a run to its line.
func (e *explanation) fillRun(ctx context.Context, i int, r ledger.Run) error {
	nodes, err := e.nodes(ctx, r)
	if err != nil {
		return err
	}
	loop, err := e.loopText(ctx, r)
	if err != nil {
		return err
	}

	l := &e.lines[i]
	l.State, l.WaitingFor, l.Outcome, l.Node = r.State, r.WaitingFor, r.Outcome, nodes[1]
	for _, reason := range []string{e.blockedText(r), lateText(l.Explanation, r), e.runText(ctx, r), loop} {
		if reason != "" && !strings.Contains(l.Reason, reason) {
			l.addReason(reason)
		}
	}
	if r.Attempt > 1 {
		return e.retries(ctx, r, nodes)
	}
	return nil
}

// nodes returns the nodes of a run's attempts, by attempt number. It returns nil if the ledger is
// not shared.
func (e *explanation) nodes(ctx context.Context, r ledger.Run) (map[int]string, error) {
	if e.Nodes == nil || r.Attempt == 0 {
		return nil, nil
	}
	return e.Ledger.Nodes.OfAttempts(ctx, r.ID)
}

// blockedText returns how long a run was blocked and by which obstacles. It returns an empty string
// if the run was not blocked or still is.
func (e *explanation) blockedText(r ledger.Run) string {
	if r.Blocked.Since.IsZero() || r.Blocked.Now() {
		return ""
	}

	waited := r.Blocked.Until.Sub(r.Blocked.Since).Round(time.Second)
	out := fmt.Sprintf("waited %s for %s", waited, failureText(record.ObstaclesText(r.Blocked.By)))
	if !r.StartedAt.IsZero() {
		out += "; ran " + api.LocalTime(r.StartedAt, e.zone)
	}
	return out
}

// noticeable is the minimum delay of a run's start that its line mentions.
const noticeable = 30 * time.Second

// lateText returns how late a scheduled run started. It returns an empty string if the run was on
// time or the line already mentions it.
func lateText(l api.Explanation, r ledger.Run) string {
	late := r.StartedAt.Sub(l.Actual.Time)
	if r.Trigger != domain.TriggerSchedule || r.StartedAt.IsZero() || l.Actual.IsZero() || late <= noticeable || strings.Contains(l.Reason, "late") || !r.Blocked.Since.IsZero() {
		return ""
	}
	return fmt.Sprintf("started %s late", late.Round(time.Second))
}

// loopText returns how the loop of a converging watch ended with a run, or an empty string.
func (e *explanation) loopText(ctx context.Context, r ledger.Run) (string, error) {
	var d ledger.TriggerDetail
	_ = json.Unmarshal(r.Detail, &d) // without a valid detail, there is no folder
	if d.Folder == "" {
		return "", nil
	}
	events, err := e.Ledger.Events.List(ctx, event.Filter{Run: r.ID, Limit: maxTimeline})
	if err != nil {
		return "", err
	}

	for _, event := range events {
		var data struct {
			Runs   int    `json:"runs"`
			Reason string `json:"reason"`
		}
		switch _ = json.Unmarshal(event.Data, &data); event.Kind { // omit unreadable values
		case "watch.converged":
			return fmt.Sprintf("the folder came to rest after %s", text.Plural(data.Runs, "run")), nil
		case "watch.adopted", "watch.stopped":
			return data.Reason, nil
		}
	}
	return "", nil
}

// addReason appends text to the reason of a line.
func (l *line) addReason(text string) { l.Reason = joinNotes([]string{l.Reason, text}) }

// runText returns the error of a run, or the reason why it has not finished.
func (e *explanation) runText(ctx context.Context, r ledger.Run) string {
	switch r.Outcome {
	case domain.OutcomeSkipped, domain.OutcomeCancelled, domain.OutcomeInterrupted:
		return cmp.Or(r.Error, r.Summary)
	case domain.OutcomeError, domain.OutcomeTimeout, domain.OutcomeBudget:
		return failureText(r.Error)
	}

	return e.pending(ctx, r, e.pauses, e.now, e.zone).Reason
}

// maxFailure is the maximum length of an error on a line, in characters.
const maxFailure = 300

// failureText returns an error as text for a line.
func failureText(failure string) string { return text.Truncate(text.OneLine(failure), maxFailure) }

// endedText maps the state of an attempt to the words for its end.
var endedText = map[domain.AttemptState]string{domain.AttemptDone: "had ended", domain.AttemptFailed: "failed", domain.AttemptInterrupted: "was interrupted", domain.AttemptRunning: "is still on", domain.AttemptWaiting: "waited for its owner"}

// retries adds a line for each attempt after the first.
func (e *explanation) retries(ctx context.Context, r ledger.Run, nodes map[int]string) error {
	attempts, err := e.Ledger.Runs.Attempts(ctx, r.ID)
	if err != nil {
		return err
	}

	for i, at := range attempts[1:] {
		ex := api.Explanation{Source: sourceRetry, Nominal: api.At(at.StartedAt), Actual: api.At(at.StartedAt), Decision: domain.DecisionRun,
			Run: fmt.Sprint(r.ID), Node: nodes[at.Number], State: domain.State(at.State), Reason: fmt.Sprintf("attempt %d of run %d; attempt %d %s", at.Number, r.ID, attempts[i].Number, endedText[attempts[i].State])}
		if why := attempts[i].Error; why != "" {
			ex.Reason += ": " + failureText(why)
		}

		// The last attempt has the current state of the run.
		if i == len(attempts)-2 {
			ex.State, ex.WaitingFor, ex.Outcome = r.State, r.WaitingFor, r.Outcome
		}

		e.add(rankRetry, ex)
	}

	return nil
}
