package domain

import "time"

// Overlap is what becomes of an instant of a schedule while the job has other runs.
type Overlap string

// The overlap policies.
const (
	OverlapSkip     Overlap = "skip"            // it is skipped while one is queued or running; also what "" means
	OverlapQueueOne Overlap = "queue_one"       // it is skipped while one is queued
	OverlapQueueAll Overlap = "queue_all"       // it waits for the ones before it
	OverlapCancel   Overlap = "cancel_previous" // it takes their place
	OverlapAllow    Overlap = "allow"           // it runs beside them
)

// OnMiss is what becomes of instants that were not started in time.
type OnMiss string

// The policies for what was missed.
const (
	MissSkip    OnMiss = "skip"        // nothing
	MissRunOnce OnMiss = "run_once"    // the last one runs late; also what "" means
	MissCatchup OnMiss = "run_catchup" // all of them run late, one after the other
)

// Decision is what became of an instant of a schedule. It stays, except that a missed one may yet
// run.
type Decision string

// The decisions.
const (
	DecisionRun     Decision = "run"     // a run was queued for it
	DecisionSkipped Decision = "skipped" // a policy or a pause held it back
	DecisionMissed  Decision = "missed"  // nothing could run then
	DecisionRefused Decision = "refused" // what it would have run cannot run
)

// Earlier returns the earlier of two times, of which the zero time means never.
func Earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
