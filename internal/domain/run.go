package domain

// State is the state of a run: queued → running ⇄ waiting → finished. Only the ledger changes it. A
// cancellation leads from any state to finished.
type State string

// The states of a run.
const (
	StateQueued   State = "queued"   // accepted; the dispatcher starts it
	StateRunning  State = "running"  // an attempt is running
	StateWaiting  State = "waiting"  // waiting for the event named by Wait; the dispatcher resumes it
	StateFinished State = "finished" // has an outcome; only a retry changes it again, to queued
)

// Wait is the event that a waiting run waits for. It is empty if the run is not waiting.
type Wait string

// The events that a run can wait for.
const (
	WaitRetry    Wait = "retry"    // the retry time, after a failed attempt or an unavailable model
	WaitResume   Wait = "resume"   // a free lane, after an interrupted attempt or an answer
	WaitInput    Wait = "input"    // a person's answer to a question, or its expiry
	WaitApproval Wait = "approval" // a person's approval, or its expiry
	WaitPause    Wait = "pause"    // a person who continues the run after its skill paused it
)

// Outcome is the result of a finished run for its owner. It is empty if the run is not finished.
// The loop sets it, and the job's expectations can change it.
type Outcome string

// The outcomes.
const (
	OutcomeSuccess     Outcome = "success"
	OutcomeNothing     Outcome = "nothing"         // there was no work
	OutcomePartial     Outcome = "partial"         // part of the work is missing
	OutcomeError       Outcome = "error"           // the job's retry may repeat it
	OutcomeTimeout     Outcome = "timeout"         // the job's retry may repeat it
	OutcomeBudget      Outcome = "budget_exceeded" // a limit of the run or of the day was reached
	OutcomeCancelled   Outcome = "cancelled"       // by a person, or by a run that replaced it
	OutcomeInterrupted Outcome = "interrupted"     // its process died, and there were no attempts left
	OutcomeSkipped     Outcome = "skipped"         // not started: a condition was not met, or too late
)

// Done reports whether the work is done and must not be repeated.
func (o Outcome) Done() bool {
	return o == OutcomeSuccess || o == OutcomeNothing || o == OutcomePartial
}

// Failed reports whether an attempt with this outcome counts as failed.
func (o Outcome) Failed() bool {
	return o == OutcomeError || o == OutcomeTimeout || o == OutcomeBudget
}

// Failure is the value for notify.on that selects every outcome that opens an incident.
const Failure = "failure"

// OpensIncident reports whether the outcome is a failure of the job. It opens an incident or is
// counted by the open one.
func (o Outcome) OpensIncident() bool { return o.Failed() || o == OutcomeInterrupted }

// Reached reports whether the run ended by itself, with complete or partial work or without any.
func (o Outcome) Reached() bool {
	return o == OutcomeSuccess || o == OutcomeNothing || o == OutcomePartial || o == OutcomeSkipped
}

// Exit is the way in which the loop of a run ended. docs/dev/states.md maps exits to outcomes.
type Exit string

// The exits of the loop.
const (
	ExitFinalResponse Exit = "final_response"        // a response without calls, or no response at all
	ExitIterationCap  Exit = "iteration_cap_reached" // no steps left
	ExitOverBudget    Exit = "over_budget"           // the history does not fit
	ExitToolRejected  Exit = "tool_rejected"         // a refused call, if that ends the run
	ExitCancelled     Exit = "cancelled"             // canceled from outside or by a limit
	ExitEnded         Exit = "ended_by_surface"      // by a call that ends the run, or before the loop
	ExitEmptyResponse Exit = "empty_response"        // empty responses after a tool result
)

// AttemptState is the state of one attempt at a run.
type AttemptState string

// The states of an attempt. Only a running attempt changes.
const (
	AttemptRunning     AttemptState = "running"     // ended by its process, or after that process died
	AttemptDone        AttemptState = "done"        // it ended the run
	AttemptWaiting     AttemptState = "waiting"     // ended with a question; an answer starts the next one
	AttemptInterrupted AttemptState = "interrupted" // its process died or was stopped
	AttemptFailed      AttemptState = "failed"      // the next attempt is a retry
)

// States returns all states of a run.
func States() []State { return []State{StateQueued, StateRunning, StateWaiting, StateFinished} }

// Outcomes returns all outcomes of a run.
func Outcomes() []Outcome {
	return []Outcome{OutcomeSuccess, OutcomeNothing, OutcomePartial, OutcomeError, OutcomeTimeout, OutcomeBudget, OutcomeCancelled, OutcomeInterrupted, OutcomeSkipped}
}
