package loop

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"rouse/agent/model"
	"rouse/internal/domain"
	"rouse/internal/progress"
)

// MaxRetryWait limits the delay before a failed turn is retried.
const MaxRetryWait = 2 * time.Minute

// longestBackoff is the maximum delay that was not requested by the server.
const longestBackoff = 20 * time.Second

type turn struct {
	number  int
	text    string
	result  string   // text without reasoning; empty if it must not end the run
	fault   string   // reason the text is neither a result nor a call, as a clause about the answer
	unended bool     // the fault is reasoning without an end
	notices []string // about the answer, for the record
	calls   []model.Call
	end     *model.End
	stop    string
	limit   int             // maximum tokens of the answer
	raw     json.RawMessage // data that the adapter needs in later requests
	usage   model.Usage     // as reported by the server
	spent   Spent
	started bool // a part of the answer has arrived
	arrived int  // bytes that have arrived
	// Possible cost in addition to usage. Nil if the provider does not report it.
	unreported *model.Unreported
	retried    model.Retried // failures before the successful turn
}

// cutOff returns the reason a text is incomplete, or "".
func (t turn) cutOff() string {
	switch t.stop {
	case model.StopLength:
		return fmt.Sprintf("the model's last answer was cut off at its greatest length of %d tokens; raise max_output", t.limit)
	case stopRepetition:
		return fmt.Sprintf("the model's last answer was ended because it repeated a line %d times in a row", maxRepeatedLines)
	case model.StopFilter:
		return "the provider withheld the rest of the model's last answer"
	case model.StopRefusal:
		return "the model declined to do it, or to say more"
	}
	return ""
}

// step asks for one answer and records it. failure is a failure of the model, and err an error of
// the host.
func (r *run) step(ctx context.Context, noTools bool) (t turn, failure, err error) {
	if r.Policy.NoModel {
		return r.playbookStep(ctx)
	}

	writing := context.WithoutCancel(ctx)
	// Reserve before recording the step: a turn without budget is not a step.
	reserved, failure, err := r.reserve(writing, r.lastStep+1, noTools)
	if failure != nil || err != nil {
		return turn{}, failure, err
	}

	s := Step{Number: r.nextStep(), Notices: r.noticesForRecord(), StartedAt: time.Now()}
	if err := r.Recorder.StartStep(writing, s); err != nil {
		return turn{}, nil, err
	}
	t, failure, err = r.askWithRetries(ctx, s.Number, reserved, noTools)
	progress.From(ctx).Answered(s.Number)
	if err != nil {
		return t, nil, err
	}

	t.number = s.Number
	s.Text, s.Model, s.Spent, s.FinishedAt = t.text, r.Model, t.spent, time.Now()
	s.Notices, r.switchNotices = append(s.Notices, r.switchNotices...), nil
	if failure != nil {
		s.Text = "the model failed: " + failure.Error()
		return t, failure, r.Recorder.FinishStep(writing, s)
	}

	r.answeredAt = s.FinishedAt
	r.result.Answered++
	s.Retried = t.retried
	r.readText(&t, noTools)
	r.assignIDs(&t)
	s.Notices = append(s.Notices, t.notices...)
	message := model.Message{Role: model.RoleAssistant, Text: t.text, Calls: t.calls, Raw: t.raw}
	if len(t.calls) == 0 && (t.result == "" || t.fault != "") { // a later request must contain neither reasoning alone nor a call as text
		message = model.Message{Role: model.RoleAssistant}
	}
	if s.Message, err = encode(message); err != nil {
		return t, nil, fmt.Errorf("the answer of the model cannot be recorded: %w", err)
	}

	// An empty message is recorded but not sent back.
	if message.Text != "" || len(t.calls) > 0 {
		r.messages = append(r.messages, message)
	}

	return t, nil, r.Recorder.FinishStep(writing, s)
}

// encode encodes a message for the record. It does not escape <, > and &, because a resumed attempt
// must send the same bytes, which the provider has cached.
func encode(m model.Message) (json.RawMessage, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	err := enc.Encode(m)
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), err
}

// askWithRetries asks until a turn is complete. Retries are not charged. Only the first try
// contains the notices. Each try has its own reservation; reserved is the first.
func (r *run) askWithRetries(ctx context.Context, step int, reserved reservation, noTools bool) (t turn, failure, err error) {
	writing := context.WithoutCancel(ctx)
	staged := r.staged
	var spent Spent
	var down error // last failure of the model
	var retried model.Retried
	for try := 0; ; try++ {
		progress.From(ctx).Ask(step)
		t, failure = r.ask(ctx, step, noTools)
		r.staged = nil
		if err := r.settle(writing, reserved, &t, failure); err != nil {
			return t, nil, err
		}

		spent.add(t.spent)
		var e *model.Error
		if errors.As(failure, &e) {
			down = failure
		} else if failure != nil && ctx.Err() != nil && down != nil && !t.started {
			failure = down // the reason the run was still asking when its time ended
		}

		again := e != nil && ctx.Err() == nil && e.Retryable && try < r.retries(e, &t) && r.waitBeforeRetry(ctx, e, try)
		if again && e.Feedback != "" { // the next answer responds to it, so it is recorded
			r.addNotice("%s", e.Feedback)
			r.switchNotices = append(r.switchNotices, r.staged...)
		}

		failed := failure
		if failure != nil && !again {
			// The next model has its own retries, and has not seen the notices.
			if failure = r.switchToFallback(ctx, failure); failure == nil {
				again, try, r.staged = true, -1, staged
			}
		}

		if again {
			var refusal error
			if reserved, refusal, err = r.reserve(writing, step, noTools); err != nil {
				return t, nil, err
			}
			if refusal == nil {
				retried.Times, retried.Last = retried.Times+1, failed.Error()
				continue
			}
			failure = &notAskedAgain{refusal, failed}
		}

		if t.retried.Times += retried.Times; t.retried.Last == "" {
			t.retried.Last = retried.Last
		}

		t.spent = spent
		r.result.add(spent)
		return t, failure, nil
	}
}

// retries returns the number of retries of a failed turn. It is larger for an unreachable server
// without a fallback.
func (r *run) retries(e *model.Error, t *turn) int {
	last := r.Fallback == nil || r.Fallback.taken == len(r.Fallback.Next)
	if last && e.Kind == model.KindUnavailable && !t.started && t.unreportedUsage(e).Requests == 0 {
		return max(r.Policy.TurnRetries, r.Policy.UnreachableRetries)
	}
	return r.Policy.TurnRetries
}

// playbookStep takes a step of a playbook. It asks before it records the step, because the end of
// the playbook is not a step.
func (r *run) playbookStep(ctx context.Context) (t turn, failure, err error) {
	writing := context.WithoutCancel(ctx)
	s := Step{StartedAt: time.Now()}
	if t, failure = r.ask(ctx, 0, false); failure != nil || len(t.calls) == 0 {
		return t, failure, nil
	}

	if r.Bounds.Steps > 0 && r.result.Steps >= r.Bounds.Steps {
		next := t.calls[0]
		return t, &stepsUsedUp{stop{domain.OutcomeBudget, fmt.Sprintf("the %d steps of this run (bounds.steps) were used up: without a model each call is one, and %s (call %s) was not made any more", r.Bounds.Steps, next.Name, strings.TrimPrefix(next.Key, "p"))}}, nil
	}

	s.Number = r.nextStep()
	t.number = s.Number
	r.assignIDs(&t)
	if err := r.Recorder.StartStep(writing, s); err != nil {
		return t, nil, err
	}

	s.FinishedAt = time.Now()
	return t, nil, r.Recorder.FinishStep(writing, s)
}

// waitBeforeRetry waits before a retry. It returns false if the run must end or the wait is too
// long.
func (r *run) waitBeforeRetry(ctx context.Context, e *model.Error, try int) bool {
	if r.Policy.NoRetryDelay {
		return true
	}

	wait := max(e.RetryAfter, min(time.Second<<try, longestBackoff))
	if wait > MaxRetryWait {
		return false
	}

	// The idle bound does not apply to a wait that the server requested.
	r.idle.suspend()
	defer r.idle.resume()

	t := time.NewTimer(wait)
	defer t.Stop()

	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (r *run) request(noTools bool) model.Request {
	// If one call took that long, later ones are expected to take as long.
	r.waitsLong = r.waitsLong || !r.answeredAt.IsZero() && model.WorthKeeping(time.Since(r.answeredAt))
	limit := r.MaxOutput
	if !r.Policy.NoModel {
		limit = answerLimit(r.Window, r.MaxOutput)
	}
	return model.Request{KeepTools: r.KeepTools, KeepAll: r.waitsLong, System: r.System, Messages: r.messagesWithNotices(), Tools: r.Registry.ModelTools(), NoTools: noTools,
		MaxOutput: limit, Temperature: r.Temperature, Results: r.results}
}

// ask streams one answer. step is its number in the record, or 0 for a playbook step without a
// number yet. Of a broken answer it keeps only the usage, which has been paid for.
func (r *run) ask(ctx context.Context, step int, noTools bool) (turn, error) {
	req := r.request(noTools)
	t := turn{limit: req.MaxOutput}
	var text strings.Builder
	var lines repeatedLine
	seen := progress.From(ctx)
	for e, err := range r.Provider.Stream(ctx, req) {
		if err != nil {
			return t.broken(), err
		}

		t.started = t.started || e.Unreported == nil && e.Retried == nil
		t.arrived += len(e.Text)
		if e.Call != nil {
			t.arrived += len(e.Call.Name) + len(e.Call.Args)
		}

		r.idle.restart()
		if err := r.countOutput(e); err != nil {
			return t.broken(), err
		}

		text.WriteString(e.Text)
		seen.Text(step, e.Text)
		if !r.Policy.NoModel && lines.add(e.Text) {
			t.stop = stopRepetition
			break
		}
		switch {
		case e.Call != nil && !noTools: // a model may call tools although noTools is set
			t.calls = append(t.calls, *e.Call)
		case e.Usage != nil:
			t.usage = *e.Usage
		case e.Unreported != nil:
			t.unreported = e.Unreported
		case e.Retried != nil:
			t.retried = *e.Retried
		case e.Stop != "":
			t.stop = e.Stop
		case e.Raw != nil:
			t.raw = e.Raw
		case e.End != nil:
			t.end = e.End
		}
	}

	// A provider may end its stream without an error when the context is cancelled.
	if ctx.Err() != nil {
		return t.broken(), context.Cause(ctx)
	}

	t.text = storable(text.String())
	t.result = strings.TrimSpace(t.text)
	return t, nil
}

// stopRepetition is the stop reason of an answer that the host has ended.
const stopRepetition = "repetition"

const maxRepeatedLines = 20

// repeatedLine counts consecutive equal lines while an answer arrives. Empty lines do not count.
type repeatedLine struct {
	line  []byte // incomplete line
	last  string
	times int
}

// add adds text, and reports whether a line was repeated too often.
func (l *repeatedLine) add(text string) bool {
	for {
		part, rest, ended := strings.Cut(text, "\n")
		l.line = append(l.line, part...)
		if !ended {
			return false
		}

		line := strings.TrimRight(string(l.line), " \t\r")
		l.line, text = l.line[:0], rest
		switch {
		case line == "":
		case line != l.last:
			l.last, l.times = line, 1
		default:
			if l.times++; l.times == maxRepeatedLines {
				return true
			}
		}
	}
}

func (t turn) broken() turn {
	return turn{usage: t.usage, unreported: t.unreported, started: t.started, arrived: t.arrived}
}

// countOutput counts the output of a model. It returns an error if the output exceeds the bound.
func (r *run) countOutput(e model.Event) error {
	if r.Policy.NoModel {
		return nil
	}

	r.outputBytes += int64(len(e.Text))
	if e.Call != nil {
		r.outputBytes += int64(len(e.Call.Args))
	}
	if r.Bounds.Output > 0 && r.outputBytes > r.Bounds.Output {
		return &stop{domain.OutcomeBudget, fmt.Sprintf("the model wrote more than the %d bytes of this run", r.Bounds.Output)}
	}

	return nil
}

// storable makes text valid for a database: PostgreSQL rejects NUL and invalid UTF-8.
func storable(text string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\ufffd"), "\x00", "")
}

// assignIDs gives each call a unique id and its key for later attempts. Arguments that are not JSON
// become a string, which validation rejects.
func (r *run) assignIDs(t *turn) {
	seen := map[string]bool{}
	for i := range t.calls {
		c := &t.calls[i]
		c.ID, c.Name = storable(c.ID), storable(c.Name)
		if c.ID == "" || seen[c.ID] {
			c.ID = model.NewCallID()
		}

		seen[c.ID] = true
		if c.Key == "" {
			c.Key = fmt.Sprintf("m%d.%d.%d", r.Invocation.Attempt, t.number, i+1)
		}

		args, err := compact(c.Args)
		switch {
		case len(c.Args) == 0:
			args = json.RawMessage("{}")
		case err != nil:
			args, _ = json.Marshal(string(c.Args)) // never fails
		}
		c.Args = args
	}
}

// compact returns JSON without blanks, as in the record. Resumed attempts must send the same bytes.
func compact(raw json.RawMessage) (json.RawMessage, error) {
	out := bytes.NewBuffer(make([]byte, 0, len(raw)))
	err := json.Compact(out, raw)
	return out.Bytes(), err
}

// withoutBlanks is like compact, but returns raw unchanged if it is not JSON.
func withoutBlanks(raw json.RawMessage) json.RawMessage {
	if out, err := compact(raw); err == nil {
		return out
	}
	return raw
}

// ModelInfo is a model that answers in a run, with its limits.
type ModelInfo struct {
	Name        string // as configured
	MaxOutput   int    // tokens; zero means the model's own limit
	Window      int    // context size in tokens; zero means the default
	Temperature *float64
}

// Fallback holds the models that take over one after the other, until the end of the attempt. A run
// and its reductions share one Fallback.
type Fallback struct {
	Next []ModelInfo
	// Switch makes Options.Provider and Options.Budget continue with Next[i].
	Switch func(i int)
	// Note is the reason the run starts with a model other than its first. It is recorded with the
	// first step.
	Note  string
	taken int // number of models that have taken over
}

// followFallback switches to the current model, because a reduction may have changed it.
func (r *run) followFallback() {
	if r.Fallback == nil || r.fallbacksSeen == r.Fallback.taken {
		return
	}

	r.fallbacksSeen = r.Fallback.taken
	s := r.Fallback.Next[r.fallbacksSeen-1]
	r.Model, r.MaxOutput, r.Window, r.Temperature = s.Name, s.MaxOutput, s.Window, s.Temperature
	w := newWindow(r.Options)
	r.window.budget, r.window.listed = w.budget, w.listed
	r.window.sent = 0 // this model has no cache that must be preserved
}

// switchToFallback lets the next model take over. It returns nil, or the error with which the run
// fails.
func (r *run) switchToFallback(ctx context.Context, failure error) error {
	var e *model.Error
	if ctx.Err() != nil || r.Fallback == nil || r.Fallback.taken == len(r.Fallback.Next) || !errors.As(failure, &e) || !e.AllowsFallback() {
		return failure
	}

	failed := r.Model
	r.Fallback.Switch(r.Fallback.taken)
	r.Fallback.taken++
	r.followFallback()
	// The run ends because the first model failed, so discard the result of fitHistory.
	before := r.result
	if !r.fitHistory() {
		err := fmt.Errorf("%w; and its fallback %s cannot go on: %s", failure, r.Model, r.result.Error)
		r.result = before
		return err
	}

	r.switchNotices = append(r.switchNotices, fmt.Sprintf("[Fallback] %s answers from here on in the place of %s: %s", r.Model, failed, failure))
	return nil
}

// Budget reserves the cost of each request before it is sent, and settles it afterwards.
type Budget interface {
	// Reserve reserves the maximum usage of a turn. A refusal is an error with an Outcome.
	Reserve(ctx context.Context, step int, most model.Usage) (id int64, err error)
	// Settle releases the unused part and returns the used part.
	Settle(ctx context.Context, id int64, used Settlement) (Spent, error)
}

// Settlement is the usage of a turn that had a reservation.
type Settlement struct {
	Reported  model.Usage // by the server
	Estimated model.Usage // estimated usage that the server did not report
	Why       error       // error that prevented the report; nil if the server simply did not report
}

// Spent is the usage and cost of turns.
type Spent struct {
	Usage        model.Usage
	CostMicroUSD int64
	// Estimated part of the usage and cost.
	EstimatedTokens, EstimatedMicroUSD int64
}

func (s *Spent) add(o Spent) {
	s.Usage = s.Usage.Add(o.Usage)
	s.CostMicroUSD += o.CostMicroUSD
	s.EstimatedTokens += o.EstimatedTokens
	s.EstimatedMicroUSD += o.EstimatedMicroUSD
}

type reservation struct {
	id   int64
	most model.Usage
}

// reserve reserves the next turn. A refusal ends the run and is shown to its owner.
func (r *run) reserve(ctx context.Context, step int, noTools bool) (held reservation, refusal, err error) {
	if r.Budget == nil {
		return held, nil, nil
	}

	held.most = r.maxUsage(noTools)
	held.id, err = r.Budget.Reserve(ctx, step, held.most)
	var withOutcome interface{ Outcome() domain.Outcome }
	if errors.As(err, &withOutcome) {
		return held, err, nil
	}
	return held, nil, err
}

// notAskedAgain is the error of a retry without budget. Its text is the failure, and it ends the
// run like the refusal.
type notAskedAgain struct{ refusal, failure error }

func (e *notAskedAgain) Error() string {
	return fmt.Sprintf("%s; and there is no budget to ask again: %s", e.failure, e.refusal)
}

func (e *notAskedAgain) Unwrap() error { return e.refusal }

// maxUsage estimates the maximum usage of a turn: its request and the longest answer.
func (r *run) maxUsage(noTools bool) model.Usage {
	req := r.request(noTools)
	n := tokens(len(req.System)) + ToolTokens(req.Tools)
	for _, m := range req.Messages {
		n += size(m)
	}

	answer := r.MaxOutput
	if answer <= 0 {
		answer = min(defaultResponse, req.MaxOutput)
	}

	return model.Usage{Input: int64(n), Output: int64(answer)}
}

// settle settles a try with the reported usage and an estimate of the rest.
func (r *run) settle(ctx context.Context, held reservation, t *turn, failure error) error {
	if r.Budget == nil {
		t.spent.Usage = t.usage
		return nil
	}

	var err error
	t.spent, err = r.Budget.Settle(ctx, held.id, Settlement{Reported: t.usage, Estimated: estimate(t.unreportedUsage(failure), held.most), Why: failure})
	return err
}

// estimate returns the estimated usage of requests without a reported usage. most is the maximum of
// one request.
func estimate(u model.Unreported, most model.Usage) model.Usage {
	e := u.Begun
	asked := int64(u.Requests)
	if e.Input > 0 {
		asked--
	}

	e.Input += asked * most.Input
	e.Output = max(e.Output, int64(tokens(u.Bytes)))
	return e
}

// unreportedUsage returns the possible usage of the turn that was not reported.
func (t *turn) unreportedUsage(failure error) model.Unreported {
	var dialled *net.OpError
	var e *model.Error
	// A usage of zero means that the server did not count, not that the turn was free.
	counted := t.usage != model.Usage{}
	switch {
	case t.unreported != nil:
		return *t.unreported
	case counted:
		return model.Unreported{}
	case !t.started && errors.As(failure, &dialled) && dialled.Op == "dial", !t.started && errors.As(failure, &e) && e.Free():
		return model.Unreported{}
	}
	return model.Unreported{Requests: 1, Bytes: t.arrived}
}
