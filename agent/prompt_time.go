package agent

import (
	"cmp"
	"fmt"
	"sync"
	"time"

	"rouse/internal/domain"
)

// promptTime is the layout of times in prompts.
const promptTime = "Monday 2006-01-02 15:04:05 MST"

// clockZone returns the time zone of the job, or that of the configuration.
func (t *task) clockZone() *time.Location {
	return cmp.Or(t.job.Zone, t.governingJob().Zone, t.zone)
}

// clockPrompt returns the start time of a run and its trigger. Every attempt of the run gets the same text, so that the
// provider can cache the prompt.
func clockPrompt(t *attempt) string {
	at := t.run.StartedAt.In(t.clockZone())
	zone := "UTC" + at.Format("-07:00")
	if name := at.Location().String(); name != "Local" && name != "UTC" {
		zone = name + ", " + zone
	}

	s := fmt.Sprintf("This run started on %s (%s), by %s", at.Format(promptTime), zone, triggerWords(t.run.Trigger))
	if !t.run.ScheduledAt.IsZero() {
		s += ", scheduled for " + t.run.ScheduledAt.In(t.clockZone()).Format(promptTime)
	}
	return s + ".\n"
}

// clockNote tells the model where to find later times.
const clockNote = "When a minute or more has passed, a tool result holds the current time in its field now.\n"

// triggerWords describes a trigger for a prompt.
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

// resultClock adds the time to at most one tool result per minute. A short run costs no extra tokens, and the model of a
// long run knows the time.
type resultClock struct {
	zone *time.Location

	mu   sync.Mutex
	told time.Time // last time that the model was given
}

// clockStep is the minimum interval between two times in tool results.
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
