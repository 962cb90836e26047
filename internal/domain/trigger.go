package domain

// Trigger is what asks for a run.
type Trigger string

// The triggers.
const (
	TriggerSchedule Trigger = "schedule" // the scheduler: an instant has come
	TriggerBackfill Trigger = "backfill" // a person: past instants of a schedule are to run after all
	TriggerWatch    Trigger = "watch"    // the watcher: files have come or changed
	TriggerWebhook  Trigger = "webhook"  // a request of another program
	TriggerAfter    Trigger = "after"    // the end of a run of another job
	TriggerSelf     Trigger = "self"     // the scheduler: a wake that the agent planned has come
	TriggerManual   Trigger = "manual"   // a person, by a command
	TriggerAPI      Trigger = "api"      // a program: by the API, or a model that calls a skill
)

// Triggers are all of them.
func Triggers() []Trigger {
	return []Trigger{TriggerSchedule, TriggerBackfill, TriggerWatch, TriggerWebhook, TriggerAfter, TriggerSelf, TriggerManual, TriggerAPI}
}

// OfInstant reports whether its run belongs to an instant of a schedule.
func (t Trigger) OfInstant() bool { return t == TriggerSchedule || t == TriggerBackfill }
