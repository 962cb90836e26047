package loop

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"rouse/agent/model"
	"rouse/agent/tool"
	"rouse/internal/domain"
	"rouse/internal/text"
)

type run struct {
	Options
	result       Result
	messages     []model.Message
	view         []model.Message // part of messages that the model sees
	results      []model.Result  // of the last step
	staged       []string        // notices for the next request only
	advice       string          // an additional notice about the last calls; a later one replaces it
	knownMu      sync.Mutex      // guards books, advice, waiting and phased.durations, because calls run at the same time
	callHistory  *bookkeeping
	stepsCharged int     // stepsCharged steps
	freeSteps    int     // steps that were not charged
	toldRelief   bool    // the model knows that moving rows is not charged
	phased       *phased // nil unless the run works in phases
	window       *window
	rotated      bool  // the context was replaced by a summary
	empty        int   // empty answers since the last call
	misread      int   // unusable answers since the last call
	cutOff       int   // consecutive answers that were cut off inside a call
	outputBytes  int64 // bytes written by the model
	idle         *idleTimer
	lastStep     int                              // number of the last step, including steps of reductions
	callsLeft    int                              // calls that the current batch leaves for reductions
	parent       *run                             // enclosing run; nil for a top-level run
	nestedSteps  int                              // model steps of runs nested in calls of this one
	replayable   int                              // calls that an earlier attempt has made and counted
	waiting      map[string]*tool.ApprovalRequest // approvals needed within calls, by key; see knownMu
	// Number of fallbacks the run has switched to, and notices about them that are not recorded
	// yet.
	fallbacksSeen int
	answeredAt    time.Time // time of the model's last answer; zero before the first
	waitsLong     bool      // a call took so long that the provider's cache expired
	switchNotices []string

	approved map[string]string // approved actions, by call key

	toolAnswered bool
	changeFailed bool   // the last call with an effect failed
	leftOut      int64  // rows that successful calls left out
	leftOutBy    string // last tool that left out rows
}

// Run executes one attempt to its end. It returns an error only if the host is broken.
func Run(ctx context.Context, o Options) (Result, error) {
	if o.Provider == nil || o.Registry == nil || o.Recorder == nil {
		return Result{}, errors.New("loop: a provider, a registry and a recorder are needed")
	}

	r := newRun(o)
	if o.Reducer != nil {
		o.Reducer.run = r
	}
	if o.Completer != nil {
		o.Completer.run = r
	}
	if o.Inner != nil {
		o.Inner.run = r
	}

	err := r.attempt(ctx)
	// Flush even if the run was cancelled, because its record must be written.
	return r.result, errors.Join(err, o.Recorder.Flush(context.WithoutCancel(ctx)))
}

func newRun(o Options) *run {
	if o.Policy.NoModel && o.Bounds.Steps == 0 {
		o.Bounds.Steps = -1 // the default is for models; a list of calls may be of any length
	}

	o.Bounds = o.Bounds.withDefaults()
	r := &run{Options: o, messages: slices.Clone(o.Messages), callHistory: newBookkeeping(), window: newWindow(o), phased: newPhased(o), approved: map[string]string{}}
	if f := o.Fallback; f != nil && f.Note != "" { // a reduction shares the Fallback and must not repeat the note
		r.switchNotices, f.Note = []string{f.Note}, ""
	}

	if r.phased != nil {
		// If Options.Board is nil, the memory has created a board. The run must use the same one.
		r.Board = r.phased.memory.Board()
	}
	return r
}

func (r *run) attempt(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)

	if d := r.Bounds.Wall; d > 0 {
		t := time.AfterFunc(d, func() {
			cancel(&stop{domain.OutcomeTimeout, fmt.Sprintf("the run took longer than its wall time of %s", d)})
		})
		defer t.Stop()
	}

	r.idle = newIdleTimer(r.Bounds.Idle, func() { cancel(&stop{domain.OutcomeTimeout, fmt.Sprintf("nothing happened for %s", r.Bounds.Idle)}) })
	defer r.idle.stop()

	if r.restore() { // the run had ended, but its end was not recorded
		return nil
	}

	return r.iterate(ctx)
}

// relief returns the number of steps that need not be charged. It is at most the step limit.
func (r *run) relief() int {
	if limit := r.limit(); limit > 0 {
		return min(r.Policy.FreeSteps, limit)
	}
	return r.Policy.FreeSteps
}

// relieve uses up one free step. It returns false if all are used up, so that the step is charged.
func (r *run) relieve() bool {
	if r.freeSteps >= r.relief() {
		return false
	}
	r.freeSteps++
	return true
}

// stepsLeft returns the number of remaining steps including free ones. It is negative if there is
// no bound.
func (r *run) stepsLeft() int {
	if r.limit() <= 0 {
		return -1
	}
	return max(r.limit()-r.stepsCharged, 0) + r.relief() - r.freeSteps
}

// nextStep counts a step that is asked of the model, and returns its number.
func (r *run) nextStep() int {
	r.result.Steps++
	return r.nextNumber()
}

func (r *run) nextNumber() int {
	r.lastStep++
	return r.lastStep
}

// restore rebuilds the state of the run from earlier attempts. over reports that an earlier attempt
// ended the run without recording it.
func (r *run) restore() (over bool) {
	askedCalls := map[string]model.Call{}
	var calls []model.Call // of the last answer, with their results
	var envelopes []tool.Envelope
	for _, m := range r.messages {
		// Only results at the end of the transcript can have ended the run.
		if m.Role != model.RoleTool {
			r.noteResults(calls, envelopes)
			calls, envelopes = nil, nil
		}

		switch {
		case m.Role == model.RoleAssistant:
			clear(askedCalls)
			for _, c := range m.Calls {
				askedCalls[c.ID] = c
			}
		case m.Role == model.RoleUser && r.phased != nil:
			r.phased.memory.ResetStreaks()
		}

		if m.Role != model.RoleTool {
			continue
		}

		var e tool.Envelope
		var args json.RawMessage
		ok := json.Unmarshal([]byte(m.Text), &e) == nil && e.OK
		if c, known := askedCalls[m.CallID]; known {
			made, acts := r.phasedCall(c)
			// Other steps could not be parsed and were never in the memory.
			if acts || ok {
				r.memorize(c, e)
			}

			m.Name, args = made.Name, made.Args
			if t, planning := r.Registry.Lookup(made.Name); planning && t.Class() == tool.ClassPlan {
				r.callHistory.todoWritten(e)
			}

			calls, envelopes = append(calls, c), append(envelopes, e)
		}

		r.noteOutcome(m.Name, args, e, ok)
	}

	r.noteResults(calls, envelopes)
	// If the last attempt was not interrupted, a question in it has been answered since.
	return r.Interrupted && r.endedByCall(calls, envelopes)
}

// noteOutcome records whether the last call with an effect succeeded, and counts the rows that
// calls left out.
func (r *run) noteOutcome(name string, args json.RawMessage, e tool.Envelope, ok bool) {
	r.toolAnswered = true
	if t, known := r.Registry.Lookup(name); known && t.EffectOf(args) != domain.EffectRead && !t.Ends() {
		r.changeFailed = !ok
		if n := e.LeftOut(); ok && n > 0 {
			r.leftOut, r.leftOutBy = r.leftOut+n, name
		}
	}
}

// leftOutError describes the rows that were left out, or returns "". Playbooks check their own
// calls.
func (r *run) leftOutError() string {
	if r.leftOut == 0 || r.Policy.NoModel {
		return ""
	}
	return fmt.Sprintf("%s left out %s", r.leftOutBy, text.Plural(int(r.leftOut), "row"))
}

func (r *run) iterate(ctx context.Context) error {
	if len(r.PendingCalls) > 0 {
		if over, err := r.finishPending(ctx); over || err != nil {
			return err
		}
	}
	for {
		if r.endIfStopped(ctx) {
			return nil
		}
		if !r.Policy.NoModel && (r.Exhausted || r.limit() > 0 && r.stepsCharged >= r.limit()) {
			return r.closeWithText(ctx)
		}
		if !r.fitHistory() {
			return nil
		}

		// Charge before the notices are written, because they count the current step.
		r.stepsCharged++
		r.orderNotices()
		t, failure, err := r.step(ctx, false)
		if err != nil {
			return err
		}

		if failure != nil {
			if r.makeRoom(failure) {
				r.stepsCharged-- // the server rejected the request before the model did any work
				continue
			}
			if failure = r.askInParts(ctx, failure); failure == nil {
				continue
			}
			r.endFailed(ctx, failure)
			return nil
		}

		over, free, err := r.handleAnswer(ctx, t)
		if over || err != nil {
			return err
		}

		if free {
			r.stepsCharged--
		}
	}
}

// fitHistory fits the history into the model's context. If that is impossible, it ends the run and
// returns false.
func (r *run) fitHistory() bool {
	if r.Policy.NoModel {
		return true
	}

	r.followFallback()
	// Rotation is possible once per attempt, so there are at most two rounds.
	for {
		r.renderMemory()
		if r.window.nearlyFull(r.messages) {
			r.addNotice("The context is nearly full, and the oldest turns will be left out. Put what you still need into a file or a table, and bring the task to its end.")
		}

		var fits bool
		if r.view, fits = r.window.fit(r.messages); fits {
			return true
		}
		if !r.rotate() {
			break
		}
	}

	r.end(domain.ExitOverBudget, domain.OutcomeError, "", "the task and its last turns do not fit into the model's context (about %d tokens are left for them); use a model with a larger context_window (rouse config check says when it is too small), a shorter task, or fewer tools", max(r.window.budget, 0))
	return false
}

// handleAnswer processes an answer. Text without calls ends the run as an unverified success.
func (r *run) handleAnswer(ctx context.Context, t turn) (over, free bool, err error) {
	r.cutOff = 0
	switch {
	case t.end != nil:
		r.result.Exit, r.result.Outcome = domain.ExitEnded, t.end.Outcome
		r.result.Summary, r.result.Error, r.result.Kind = t.end.Summary, t.end.Error, t.end.Kind
		r.result.Verified = t.end.Outcome == domain.OutcomeSuccess
		return true, false, nil
	case len(t.calls) > 0:
		r.empty, r.misread = 0, 0
		return r.executeCalls(ctx, t)
	case t.fault != "":
		return r.askForCall(t), true, nil
	case t.result == "":
		return r.nudge(), true, nil
	}

	r.result.Exit, r.result.Outcome, r.result.Summary = domain.ExitFinalResponse, domain.OutcomeSuccess, t.result
	if r.result.Error = t.cutOff(); r.result.Error == "" && r.changeFailed {
		r.result.Error = "the last call that could change something failed"
	}
	r.result.Error = cmp.Or(r.result.Error, r.leftOutError())

	if r.result.Error != "" {
		r.result.Outcome = domain.OutcomePartial
	}

	return true, false, nil
}

// endIfStopped ends the run if its context has ended, and reports whether it did.
func (r *run) endIfStopped(ctx context.Context) bool {
	if ctx.Err() == nil {
		return false
	}
	r.result.Exit, r.result.Outcome, r.result.Error = domain.ExitCancelled, domain.OutcomeCancelled, context.Cause(ctx).Error()
	r.endWithCause(context.Cause(ctx))
	return true
}

// endWithCause ends the run with the outcome and exit of a cause. It returns false if the cause has
// no outcome.
func (r *run) endWithCause(cause error) bool {
	var withOutcome interface{ Outcome() domain.Outcome }
	if !errors.As(cause, &withOutcome) {
		return false
	}

	r.result.Exit, r.result.Outcome, r.result.Error = domain.ExitCancelled, withOutcome.Outcome(), cause.Error()
	var withExit interface{ Exit() domain.Exit }
	if errors.As(cause, &withExit) {
		r.result.Exit = withExit.Exit()
	}
	return true
}

// end ends the run with an error.
func (r *run) end(exit domain.Exit, outcome domain.Outcome, kind, format string, args ...any) {
	r.result.Exit, r.result.Outcome, r.result.Kind, r.result.Error = exit, outcome, kind, fmt.Sprintf(format, args...)
}

func (r *run) endExhausted(format string, args ...any) {
	r.end(domain.ExitCancelled, domain.OutcomeBudget, "", format, args...)
}

// endFailed ends the run because the model failed for good or wrote too much.
func (r *run) endFailed(ctx context.Context, failure error) {
	var e *model.Error
	if errors.As(failure, &e) {
		r.result.Failure = failure
	}

	switch stopped := r.endIfStopped(ctx); {
	case stopped && e != nil: // stopped while waiting for a retry: report the failure first
		r.result.Error = fmt.Sprintf("%s; and %s", failure, r.result.Error)
	case !stopped && !r.endWithCause(failure):
		r.result.Exit, r.result.Outcome, r.result.Error = domain.ExitEnded, domain.OutcomeError, failure.Error()
	}
}

// closeWithText ends a run without remaining steps. It asks the model for a final text.
func (r *run) closeWithText(ctx context.Context) error {
	r.result.Exit, r.result.Outcome = domain.ExitIterationCap, domain.OutcomeBudget
	more := ""
	if free := r.result.Steps - r.stepsCharged; free > 0 {
		more = fmt.Sprintf(", beside %d that were not charged", free)
	}
	if name, times := r.callHistory.streakOf(); times > 0 && r.phased == nil { // in phases every call is an agent_step
		more += fmt.Sprintf("; at the end it made the same %s call %d times", name, times)
	}

	r.result.Error = fmt.Sprintf("the %d steps of this run were used up%s", r.limit(), more)
	switch {
	case r.Exhausted:
		r.result.Error = "the steps or tokens of this run were used up before it was answered"
	case r.phased != nil:
		r.result.Error = fmt.Sprintf("stuck: the %d steps of this run were used up%s", r.PriorSteps+r.limit(), more)
	}
	// If the history does not fit, the reason of the end stays the used-up steps.
	if !r.fitHistory() {
		r.result.Exit, r.result.Outcome = domain.ExitIterationCap, domain.OutcomeBudget
		return nil
	}

	r.addNotice("All steps are used up, and no tool can be called any more. %s",
		cmp.Or(r.Policy.ClosingPrompt, "Say in a few sentences what was done and what is missing."))
	// If the model fails here, the run ends in the same way, without a summary.
	t, _, err := r.step(ctx, true)
	r.result.Summary = t.result
	return err
}

// idleTimer ends a run in which nothing happens. It pauses during a call or a wait for a retry,
// which have their own limits.
type idleTimer struct {
	after time.Duration

	mu        sync.Mutex
	timer     *time.Timer // nil without a bound
	suspended int
}

func newIdleTimer(after time.Duration, end func()) *idleTimer {
	i := &idleTimer{after: after}
	if after > 0 {
		i.timer = time.AfterFunc(after, end)
	}
	return i
}

// restart starts the timer from zero, unless it is suspended.
func (i *idleTimer) restart() { i.change(0) }

// suspend stops the timer. It starts again when resume has been called as often as suspend, because
// calls run at the same time.
func (i *idleTimer) suspend() { i.change(1) }

func (i *idleTimer) resume() { i.change(-1) }

func (i *idleTimer) change(by int) {
	i.mu.Lock()
	defer i.mu.Unlock()

	i.suspended += by
	switch {
	case i.timer == nil:
	case i.suspended > 0:
		i.timer.Stop()
	default:
		i.timer.Reset(i.after)
	}
}

func (i *idleTimer) stop() { i.suspend() }
