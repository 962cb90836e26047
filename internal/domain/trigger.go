package domain

// Trigger is the cause of a run.
type Trigger string

// The triggers.
const (
	TriggerSchedule Trigger = "schedule" // the scheduler, at a scheduled time
	TriggerBackfill Trigger = "backfill" // a person, for past scheduled times
	TriggerWatch    Trigger = "watch"    // the watcher, for new or changed files
	TriggerWebhook  Trigger = "webhook"  // a request of another program
	TriggerAfter    Trigger = "after"    // the end of another job's run
	TriggerSelf     Trigger = "self"     // the scheduler, at a wake-up that the agent planned
	TriggerManual   Trigger = "manual"   // a person, with a command
	TriggerAPI      Trigger = "api"      // a program using the API, or a model that calls a skill
)

// Triggers returns all triggers.
func Triggers() []Trigger {
	return []Trigger{TriggerSchedule, TriggerBackfill, TriggerWatch, TriggerWebhook, TriggerAfter, TriggerSelf, TriggerManual, TriggerAPI}
}

// OfInstant reports whether a run with this trigger belongs to a scheduled time.
func (t Trigger) OfInstant() bool { return t == TriggerSchedule || t == TriggerBackfill }
