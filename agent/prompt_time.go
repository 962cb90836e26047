package agent

import (
	"fmt"
	"sync"
	"time"

	"rouse/agentdb/ledger"
	"rouse/internal/domain"
)

// promptTime is how prompts write a time: the weekday, the date, the time and the zone.
const promptTime = "Monday 2006-01-02 15:04:05 MST"

// clockZone returns the timezone of the job, else that of the configuration.
func (t *task) clockZone() *time.Location {
	switch {
	case t.job.Zone != nil:
		return t.job.Zone
	case t.origin != nil && t.origin.Zone != nil:
		return t.origin.Zone
	case t.zone != nil:
		return t.zone
	}
	return time.UTC
}

// clockPrompt returns the time at which a run started, and its trigger. Every attempt at the run gets the
// same text, so that a provider's cache keeps the prompt.
func clockPrompt(run ledger.Run, t task) string {
	at := run.StartedAt.In(t.clockZone())
	zone := "UTC" + at.Format("-07:00")
	if name := at.Location().String(); name != "Local" && name != "UTC" {
		zone = name + ", " + zone
	}

	s := fmt.Sprintf("This run started on %s (%s), by %s", at.Format(promptTime), zone, triggerWords(run.Trigger))
	if !run.ScheduledAt.IsZero() {
		s += ", scheduled for " + run.ScheduledAt.In(t.clockZone()).Format(promptTime)
	}
	return s + ".\n"
}

// clockNote tells a model where later times are.
const clockNote = "When a minute or more has passed, a tool result holds the current time in its field now.\n"

// triggerWords returns a trigger as a prompt names it.
func triggerWords(t domain.Trigger) string {
	switch t {
	case domain.TriggerSchedule:
		return "its schedule"
	case domain.TriggerBackfill:
		return "a backfill of its schedule"
	case domain.TriggerWatch:
		return "a watched folder"
	case domain.TriggerWebhook:
		return "a webhook"
	case domain.TriggerAfter:
		return "the end of another job's run"
	case domain.TriggerSelf:
		return "a planned wake"
	case domain.TriggerManual:
		return "its owner"
	}
	return "the API"
}

// resultClock decides which tool results hold the time. It adds the time to one result a minute at most: a
// short run costs no token more, and a long one can tell how late it is.
type resultClock struct {
	zone *time.Location

	mu   sync.Mutex
	told time.Time // the time that the model knows
}

// clockStep is the least time between two times that a model is told.
const clockStep = time.Minute

// now returns the time for a result, or "" if the model knows a recent one.
func (c *resultClock) now(string) string {
	c.mu.Lock()
	defer c.mu.Unlock()

	at := time.Now()
	if at.Sub(c.told) < clockStep {
		return ""
	}
	c.told = at
	return at.In(c.zone).Format(time.RFC3339)
}
