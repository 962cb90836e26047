package loop

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"rouse/agent/loop/memory"
	"rouse/agent/model"
	"rouse/agent/tool"
	"rouse/internal/domain"
	"rouse/internal/text"
)

// executeCalls executes the calls of an answer. free reports that the calls only moved data and
// cost no step.
func (r *run) executeCalls(ctx context.Context, t turn) (over, free bool, err error) {
	calls := t.calls
	allowed := len(calls)
	if r.Bounds.Calls > 0 {
		allowed, r.callsLeft = r.affordable(calls, max(r.Bounds.Calls-r.result.Calls, 0))
	}

	// Check the bounds first, so that the owner is not asked about a call that would not run.
	blocked := r.repeatedTooOften(calls)
	refusals, asking, err := r.authorize(ctx, calls[:allowed], blocked)
	if asking || err != nil {
		return true, false, err
	}

	envelopes, deduped, err := r.executeBatch(ctx, &callBatch{run: r, step: t.number, calls: calls, allowed: allowed, blocked: blocked, refusals: refusals})
	if err != nil {
		return true, false, err
	}
	if asked := r.parked(); asked != nil { // a nested call needs an approval; the outer call is made again after it
		r.result.Exit, r.result.Approval = domain.ExitEnded, asked
		return true, false, nil
	}
	// The order matters: a run that declared itself finished is finished, even if another condition
	// also ended it.
	if r.endedByCall(calls, envelopes) || r.endedByRejection(calls, envelopes[:min(allowed, len(envelopes))]) || r.endedByRefusals() || r.endIfStopped(ctx) || r.endedBySameResults() {
		return true, false, nil
	}

	switch {
	case allowed < len(calls) && r.parent != nil: // the bound of the outer run
		r.endExhausted("the calls that were left to this run were used up")
	case allowed < len(calls):
		r.endExhausted("the %d calls of this run (bounds.calls) were used up", r.Bounds.Calls)
	case r.Bounds.Tokens > 0 && r.result.Usage.Input+r.result.Usage.Output > r.Bounds.Tokens:
		r.endExhausted("the run used %d tokens, more than its %d (bounds.tokens)", r.result.Usage.Input+r.result.Usage.Output, r.Bounds.Tokens)
	case r.endIfIdle():
	default:
		return false, !deduped && r.onlyMovedData(calls, envelopes) && r.relieveMove(), nil
	}

	return true, false, nil
}

// onlyMovedData reports whether all calls of a step moved rows in bulk. Such a step need not be
// charged.
func (r *run) onlyMovedData(calls []model.Call, envelopes []tool.Envelope) bool {
	for i, c := range calls {
		c, _ = r.phasedCall(c)
		t, ok := r.Registry.Lookup(c.Name)
		var one struct { // a single row is a decision of the model, not a bulk move
			Row json.RawMessage `json:"row"`
		}
		if !ok || t.Class() != tool.ClassData || !envelopes[i].OK || json.Unmarshal(c.Args, &one) != nil || len(one.Row) > 0 {
			return false
		}
	}

	return true
}

func (r *run) relieveMove() bool {
	if !r.relieve() {
		return false
	}

	if !r.toldRelief {
		r.toldRelief = true
		r.advice = fmt.Sprintf("A step that only moves rows in bulk is not counted; %s more can be free.", text.Plural(r.relief()-r.freeSteps, "step"))
	}
	return true
}

func (r *run) finishPending(ctx context.Context) (over bool, err error) {
	writing := context.WithoutCancel(ctx)
	if r.Interrupted {
		r.addNotice("An earlier attempt at this run was interrupted. The calls that it had left open were finished now.")
	}

	// The record stores calls below a step. This step is not counted, because no model was asked.
	s := Step{Number: r.nextNumber(), StartedAt: time.Now()}
	if err := r.Recorder.StartStep(writing, s); err != nil {
		return true, err
	}

	s.FinishedAt = time.Now()
	if err := r.Recorder.FinishStep(writing, s); err != nil {
		return true, err
	}

	over, _, err = r.executeCalls(ctx, turn{number: s.Number, calls: r.PendingCalls})
	return over, err
}

// executeBatch executes calls and appends their results in the model's order. deduped reports
// whether a call was answered with a known result.
func (r *run) executeBatch(ctx context.Context, b *callBatch) (_ []tool.Envelope, deduped bool, err error) {
	n := len(b.calls)
	b.envelopes, b.texts, b.errs, b.deduped = make([]tool.Envelope, n), make([]string, n), make([]error, n), make([]bool, n)
	b.serial = slices.ContainsFunc(b.calls, func(c model.Call) bool { return r.endsRun(c) || r.isStep(c) })
	if b.serial {
		b.runSerially(ctx)
	} else {
		first, duplicates := b.duplicates()
		r.runParallel(b.calls, first, func(i int) { b.answerAt(ctx, i, false) })
		for _, i := range duplicates { // the original calls have results now
			b.answerAt(ctx, i, true)
		}
	}

	if err := r.appendResults(b); err != nil {
		return nil, false, err
	}
	return b.envelopes, slices.Contains(b.deduped, true), nil
}

// runSerially answers calls up to the one that ends the run. It drops later calls.
func (b *callBatch) runSerially(ctx context.Context) {
	r := b.run
	for i, c := range b.calls {
		b.answerAt(ctx, i, false)
		if !r.isStep(c) { // a step records itself
			r.memorize(c, b.envelopes[i])
		}

		if b.errs[i] != nil || r.parked() != nil || r.hasEnded(c, b.envelopes[i]) {
			b.calls, b.envelopes = b.calls[:i+1], b.envelopes[:i+1]
			return
		}
	}
}

func (r *run) appendResults(b *callBatch) error {
	// Use a new array, because a provider may keep the array of the last request.
	r.results = r.results[:0:0]
	for i, c := range b.calls {
		if b.errs[i] != nil {
			return b.errs[i]
		}

		// A call without a recorded result ends the run, so the model never reads the text.
		r.results = append(r.results, model.Result{Call: c, Envelope: json.RawMessage(b.texts[i])})
		r.messages = append(r.messages, model.Message{Role: model.RoleTool, CallID: c.ID, Name: c.Name, Text: b.texts[i], Images: b.envelopes[i].Images})
		if i < b.allowed {
			r.result.Calls++
		}

		// A serial batch has done this after each call.
		if !b.serial {
			r.memorize(c, b.envelopes[i])
		}

		made, _ := r.phasedCall(c)
		r.noteOutcome(made.Name, made.Args, b.envelopes[i], b.envelopes[i].OK)
		if !b.deduped[i] || b.envelopes[i].OK { // a known failure has its own advice
			r.advise(made, b.envelopes[i])
		}
	}

	r.noteRefusals(b)
	r.noteResults(b.calls, b.envelopes)
	return nil
}

type callBatch struct {
	run       *run
	step      int
	calls     []model.Call
	allowed   int              // number of calls, from the first, that the bound on calls allows
	serial    bool             // run one after the other
	blocked   []bool           // not made, because the same call was made too often
	refusals  []*tool.Envelope // refusals of the authorizer, for the allowed calls
	envelopes []tool.Envelope
	texts     []string // envelopes as the model reads them; "" if not recorded
	errs      []error
	deduped   []bool // answered with a known result
}

// duplicates separates calls that read the same as an earlier call of the answer.
func (b *callBatch) duplicates() (first, duplicates []int) {
	if len(b.calls) == 1 {
		return []int{0}, nil
	}

	seen := map[string]bool{}
	for i, c := range b.calls {
		if t, _ := b.run.Registry.Lookup(c.Name); !b.run.Policy.Dedupe || !readsFiles(t.Class()) {
			first = append(first, i)
			continue
		}

		if sig := signature(c); seen[sig] {
			duplicates = append(duplicates, i)
		} else {
			seen[sig] = true
			first = append(first, i)
		}
	}

	return first, duplicates
}

// answerAt answers a call from the record, with a known result or by its tool. A duplicate of a
// call that failed is made.
func (b *callBatch) answerAt(ctx context.Context, i int, duplicate bool) {
	r, c := b.run, b.calls[i]
	if i >= b.allowed {
		b.envelopes[i] = tool.Failure(tool.KindRejected, "the calls of this run are used up")
		return
	}

	// Calls have their own timeouts.
	r.idle.suspend()
	defer r.idle.resume()

	if r.isStep(c) {
		b.envelopes[i], b.texts[i], b.errs[i] = b.answerStep(ctx, i)
		return
	}

	b.envelopes[i], b.texts[i], b.errs[i] = b.answerCall(ctx, i, r.recordIndex(i), c, duplicate)
}

// answerCall answers c, which is the call at i or the inner call of the step at i. index is the
// place of c's own record. It returns the envelope and its text.
func (b *callBatch) answerCall(ctx context.Context, i, index int, c model.Call, duplicate bool) (tool.Envelope, string, error) {
	r := b.run
	if e := b.refusals[i]; e != nil {
		return r.answerRecorded(ctx, b.step, index, c, *e, domain.CallFailed)
	}

	t, ok := r.Registry.Lookup(c.Name)
	_, prior := r.PriorCalls[c.Key]
	// A call of an earlier attempt keeps its result, even if it would be blocked now.
	if b.blocked[i] && !prior {
		return r.answerRecorded(ctx, b.step, index, c, *rejected(c.Name, "the same %s call was made %d times in a row, and was not made again; do something else", c.Name, r.Policy.Phases.Repeats), domain.CallFailed)
	}

	if !ok || prior || !r.Policy.Dedupe {
		return r.execute(ctx, b.step, index, c)
	}

	sig := signature(c)
	if e, times, found := r.lookupKnown(t, c, sig); found && (!duplicate || times == 0) {
		b.deduped[i] = true
		r.adviseKnown(c, e, times)
		return r.answerRecorded(ctx, b.step, index, c, e, domain.CallDeduped)
	}

	// Take the state before the call, so that later changes do not count as read.
	pathState := t.StatKey(c.Args)
	e, text, err := r.execute(ctx, b.step, index, c)
	if err == nil {
		r.learnResult(t, c, sig, e, text, pathState)
	}

	return e, text, err
}

// runParallel runs calls at the same time. Calls that write the same place keep their order.
// Reductions run one after the other.
func (r *run) runParallel(calls []model.Call, which []int, answer func(int)) {
	if len(which) == 1 {
		answer(which[0])
		return
	}

	lanes := map[string][]int{}
	for _, i := range which {
		c := calls[i]
		lane := fmt.Sprintf("#%d", i)
		if t, ok := r.Registry.Lookup(c.Name); ok {
			switch path := t.WritePath(c.Args); {
			case t.Nests():
				lane = "nested"
			case path != "":
				lane = "path " + path
			case t.Effect() == domain.EffectDatabase:
				lane = "database"
			}
		}

		lanes[lane] = append(lanes[lane], i)
	}

	var all sync.WaitGroup
	for _, lane := range lanes {
		all.Go(func() {
			for _, i := range lane {
				answer(i)
			}
		})
	}

	all.Wait()
}

func (r *run) endsRun(c model.Call) bool {
	c, acts := r.phasedCall(c)
	if !acts {
		parsed, invalid := memory.Parse(c.Args)
		return invalid == nil && parsed.Phase == memory.End
	}
	t, ok := r.Registry.Lookup(c.Name)
	return ok && t.Ends()
}

// hasEnded reports whether a call has ended the run: it succeeded, or it asks a person a question.
func (r *run) hasEnded(c model.Call, e tool.Envelope) bool {
	if !e.OK || !r.endsRun(c) {
		return false
	}
	made, _ := r.phasedCall(c)
	t, _ := r.Registry.Lookup(made.Name)
	return !t.Waits() || questionOf(e) != nil
}

func questionOf(e tool.Envelope) *Question {
	var q Question
	if json.Unmarshal(e.Result, &q) != nil || q.Question == "" {
		return nil
	}
	return &q
}

func (r *run) endedByCall(calls []model.Call, envelopes []tool.Envelope) bool {
	for i, e := range envelopes {
		if !r.hasEnded(calls[i], e) {
			continue
		}

		made, _ := r.phasedCall(calls[i])
		if t, _ := r.Registry.Lookup(made.Name); t.Waits() {
			q := questionOf(e) // not nil, see hasEnded
			q.Call = calls[i].Key
			r.result.Exit, r.result.Wait = domain.ExitEnded, q
			if r.Policy.EndOnQuestion && q.SignIn == "" && q.InputSchema == nil {
				r.result.Wait, r.result.Outcome, r.result.Summary = nil, domain.OutcomePartial, q.text()
				r.result.Error = "the run asked a question; send the request again with the answer"
			}
			return true
		}

		// A tool that ends the run need not report an outcome.
		var end struct {
			Summary, Error string
			Outcome        domain.Outcome
		}
		if json.Unmarshal(e.Result, &end) != nil || end.Outcome == "" {
			end.Outcome = domain.OutcomeSuccess
		}
		// If the model states the outcome, it may have added the missing rows itself.
		if why := r.leftOutError(); why != "" && end.Outcome == domain.OutcomeSuccess && !namesOutcome(made.Args) {
			end.Outcome, end.Error = domain.OutcomePartial, cmp.Or(end.Error, why)
		}

		r.result.Exit, r.result.Outcome, r.result.Summary, r.result.Error = domain.ExitEnded, end.Outcome, end.Summary, end.Error
		r.result.Verified = end.Error == ""
		return true
	}
	return false
}

// namesOutcome reports whether the arguments of an ending call state an outcome.
func namesOutcome(args json.RawMessage) bool {
	var a struct {
		Outcome   string
		EndStatus string `json:"end_status"`
	}
	return json.Unmarshal(args, &a) == nil && a.Outcome+a.EndStatus != ""
}

func (r *run) endedByRejection(calls []model.Call, envelopes []tool.Envelope) bool {
	if !r.Policy.StopOnRejection {
		return false
	}

	for i, e := range envelopes {
		if e.Kind == tool.KindRejected || e.Kind == tool.KindUserDenied {
			r.end(domain.ExitToolRejected, domain.OutcomeError, "", "%s was rejected: %s", calls[i].Name, e.Message)
			return true
		}
	}

	return false
}
