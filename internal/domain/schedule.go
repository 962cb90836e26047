package domain

import "time"

// Overlap is the policy for a scheduled time at which the job has other unfinished runs.
type Overlap string

// The overlap policies.
const (
	OverlapSkip     Overlap = "skip"            // skip if a run is queued or running; the default
	OverlapQueueOne Overlap = "queue_one"       // skip if a run is queued
	OverlapQueueAll Overlap = "queue_all"       // wait for the earlier runs
	OverlapCancel   Overlap = "cancel_previous" // cancel the earlier runs
	OverlapAllow    Overlap = "allow"           // run in parallel
)

// OnMiss is the policy for scheduled times that were missed.
type OnMiss string

// The policies for missed times.
const (
	MissSkip    OnMiss = "skip"        // do not run
	MissRunOnce OnMiss = "run_once"    // run once, for the last missed time; the default
	MissCatchup OnMiss = "run_catchup" // run for each missed time, one after the other
)

// Decision is the result for a scheduled time. It does not change, except that a missed time may
// still run later.
type Decision string

// The decisions.
const (
	DecisionRun     Decision = "run"     // a run was queued
	DecisionSkipped Decision = "skipped" // skipped by a policy or a pause
	DecisionMissed  Decision = "missed"  // the daemon could not run it at that time
	DecisionRefused Decision = "refused" // the job cannot run
)

// Earlier returns the earlier of two times. The zero time means never.
func Earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
