package domain

// State is where a run stands: queued → running ⇄ waiting → finished. The ledger moves it, when it is
// asked to; from each of them a cancellation leads to finished.
type State string

// The states, and who moves a run on.
const (
	StateQueued   State = "queued"   // accepted; the dispatcher starts it
	StateRunning  State = "running"  // an attempt is on; its end, or the rescue of it, moves it
	StateWaiting  State = "waiting"  // for what its Wait says; the dispatcher resumes it
	StateFinished State = "finished" // has an outcome; only a retry moves it again, to queued
)

// Wait is what a waiting run waits for; "" for one that does not wait.
type Wait string

// What a run waits for, and who ends that.
const (
	WaitRetry    Wait = "retry"    // a time, after an attempt that failed or whose model could not be asked; the dispatcher goes on
	WaitResume   Wait = "resume"   // a free lane, after an interrupted attempt or an answer; the dispatcher goes on
	WaitInput    Wait = "input"    // the answer of a person to a question, until it expires
	WaitApproval Wait = "approval" // the permission of a person, until it expires
	WaitPause    Wait = "pause"    // a person to have it go on: its skill paused it (OSL-13)
)

// Outcome is what a finished run means to its owner; "" while it is not finished. The loop gives
// one, and what is expected of the run can change it.
type Outcome string

// The outcomes.
const (
	OutcomeSuccess     Outcome = "success"
	OutcomeNothing     Outcome = "nothing"         // there was nothing to do
	OutcomePartial     Outcome = "partial"         // some of it is missing
	OutcomeError       Outcome = "error"           // may be tried again by the job's retry
	OutcomeTimeout     Outcome = "timeout"         // may be tried again by the job's retry
	OutcomeBudget      Outcome = "budget_exceeded" // a limit of the run, or of a day
	OutcomeCancelled   Outcome = "cancelled"       // by a person, or by the run that took its place
	OutcomeInterrupted Outcome = "interrupted"     // its process died, and no attempt was left
	OutcomeSkipped     Outcome = "skipped"         // it did not begin: a condition was not met, or its time was over
)

// Done reports whether an outcome means that the work is done, so that the same work is not to be
// taken again.
func (o Outcome) Done() bool {
	return o == OutcomeSuccess || o == OutcomeNothing || o == OutcomePartial
}

// Failed reports whether an attempt with this outcome counts as failed.
func (o Outcome) Failed() bool {
	return o == OutcomeError || o == OutcomeTimeout || o == OutcomeBudget
}

// Failure stands for every outcome that opens an incident, in notify.on.
const Failure = "failure"

// OpensIncident reports whether a run with this outcome is a failure of its job. It opens an incident, or counts in the
// open one.
func (o Outcome) OpensIncident() bool { return o.Failed() || o == OutcomeInterrupted }

// Reached reports whether a run has come to an end of its own, good or with less than was wanted.
func (o Outcome) Reached() bool {
	return o == OutcomeSuccess || o == OutcomeNothing || o == OutcomePartial || o == OutcomeSkipped
}

// Exit is how the loop of a run ended (OSA-02). docs/dev/states.md has what becomes an outcome of
// which exit.
type Exit string

// The exits.
const (
	ExitFinalResponse Exit = "final_response"        // a text without calls, or no answer at all
	ExitIterationCap  Exit = "iteration_cap_reached" // the steps are used up
	ExitOverBudget    Exit = "over_budget"           // the history cannot be made to fit
	ExitToolRejected  Exit = "tool_rejected"         // a refused call, where that ends a run
	ExitCancelled     Exit = "cancelled"             // from outside, or by a bound
	ExitEnded         Exit = "ended_by_surface"      // by a call that ends the run, or before the loop began
	ExitEmptyResponse Exit = "empty_response"        // answers without anything in them, after a tool result
)

// AttemptState is where one try at a run stands.
type AttemptState string

// The states of an attempt. Only a running one moves.
const (
	AttemptRunning     AttemptState = "running"     // its process ends it, or who finds that process dead
	AttemptDone        AttemptState = "done"        // it ended the run
	AttemptWaiting     AttemptState = "waiting"     // it ended in a question; the next one goes on with the answer
	AttemptInterrupted AttemptState = "interrupted" // its process died or was stopped
	AttemptFailed      AttemptState = "failed"      // the next one is a retry
)

// States are all states of a run.
func States() []State { return []State{StateQueued, StateRunning, StateWaiting, StateFinished} }

// Outcomes are all ways in which a run ends.
func Outcomes() []Outcome {
	return []Outcome{OutcomeSuccess, OutcomeNothing, OutcomePartial, OutcomeError, OutcomeTimeout, OutcomeBudget, OutcomeCancelled, OutcomeInterrupted, OutcomeSkipped}
}
