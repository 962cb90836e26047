package traces

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"rouse/agentdb/ledger"
	"rouse/internal/domain"
)

// ending are the events with which an attempt ends.
var ending = []string{"run.finished", "run.waiting", "run.retry", "run.postponed", "run.interrupted"}

// toolName is what names of tools look like. A model may ask for anything, which is text of its own.
var toolName = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)

// spansOf makes the spans of what an event has ended: the attempt, and the run where it is over.
func (t *Traces) spansOf(ctx context.Context, e ledger.Event) (spans []sdk.ReadOnlySpan, of ended, err error) {
	if e.Run == 0 || !slices.Contains(ending, e.Kind) {
		return nil, of, nil
	}
	run, err := t.o.Ledger.Run(ctx, e.Run)
	if errors.Is(err, ledger.ErrNotFound) {
		return nil, of, nil // it was removed since
	}
	if err != nil {
		return nil, of, err
	}
	attempts, err := t.o.Ledger.Attempts(ctx, e.Run)
	if err != nil {
		return nil, of, err
	}
	began, err := t.began(ctx, e, attempts)
	if err != nil {
		return nil, of, err
	}

	b := newTrace(t, run, began)
	if a, ok := attemptOf(e, attempts); ok {
		of = ended{e.Run, a.Number}
		// One that was interrupted for good has two events, of which the first has sent it.
		if of != t.sent {
			if err := b.attempt(ctx, a); err != nil {
				return nil, of, err
			}
		}
	}
	if e.Kind == "run.finished" {
		b.run(e, attempts)
	}
	return t.made.take(), of, nil
}

// attemptOf is the attempt that an event has ended. Runs also end without one: in the queue, or while they wait.
func attemptOf(e ledger.Event, attempts []ledger.Attempt) (ledger.Attempt, bool) {
	for _, a := range slices.Backward(attempts) {
		if a.FinishedAt.Equal(e.At) {
			return a, true
		}
	}
	return ledger.Attempt{}, false
}

// began is when a trace of a run began: a run that a person has had tried again after its end is another one. Zero is the
// beginning of the run.
func (t *Traces) began(ctx context.Context, e ledger.Event, attempts []ledger.Attempt) (began time.Time, err error) {
	if len(attempts) < 2 {
		return began, nil // nothing was tried twice
	}

	f := ledger.EventFilter{Run: e.Run, Limit: page}
	for {
		events, err := t.o.Ledger.Events(ctx, f)
		if err != nil {
			return began, err
		}
		for _, earlier := range events {
			if earlier.ID >= e.ID {
				return began, nil
			}
			if earlier.Kind == "run.finished" {
				began = earlier.At
			}
			f.After = earlier.ID
		}
		if len(events) < page {
			return began, nil
		}
	}
}

// oneTrace makes the spans of a run.
type oneTrace struct {
	t     *Traces
	id    trace.TraceID
	of    ledger.Run
	began time.Time // after which its attempts started
	root  trace.SpanContext
}

func newTrace(t *Traces, run ledger.Run, began time.Time) *oneTrace {
	b := &oneTrace{t: t, of: run, began: began}
	name := fmt.Sprintf("rouse run %s %d", t.o.Ledger.EpochOf(run.ID).ID, run.ID)
	if !began.IsZero() {
		name += fmt.Sprintf(" after %d", began.UnixMilli())
	}
	sum := sha256.Sum256([]byte(name))
	copy(b.id[:], sum[:])
	b.root = b.context("run")
	return b
}

// context is what a span is known by, from what it is in its run.
func (b *oneTrace) context(name string) trace.SpanContext {
	sum := sha256.Sum256(append(b.id[:], name...))
	var id trace.SpanID
	copy(id[:], sum[:])
	return trace.NewSpanContext(trace.SpanContextConfig{TraceID: b.id, SpanID: id, TraceFlags: trace.FlagsSampled})
}

func stepName(attempt, step int) string { return fmt.Sprintf("step %d.%d", attempt, step) }

func callName(c ledger.Call) string { return fmt.Sprintf("call %d.%d.%d", c.Attempt, c.Step, c.Index) }

// span records one that has ended. Without a parent it is the root.
func (b *oneTrace) span(self, parent trace.SpanContext, name string, kind trace.SpanKind, from, to time.Time, failure string, attributes ...attribute.KeyValue) {
	ctx := context.WithValue(context.Background(), idKey{}, self)
	if parent.IsValid() {
		ctx = trace.ContextWithSpanContext(ctx, parent)
	}

	_, s := b.t.tracer.Start(ctx, name, trace.WithTimestamp(from), trace.WithSpanKind(kind), trace.WithAttributes(attributes...))
	if failure != "" {
		s.SetStatus(codes.Error, failure)
	}
	s.End(trace.WithTimestamp(to))
}

// run makes the root.
func (b *oneTrace) run(e ledger.Event, attempts []ledger.Attempt) {
	r := b.of
	var end struct {
		Outcome domain.Outcome `json:"outcome"`
		Exit    domain.Exit    `json:"exit"`
	}
	_ = json.Unmarshal(e.Data, &end) // what it does not say stays empty

	from, tries := e.At, 0
	for _, a := range attempts {
		if a.StartedAt.Before(b.began) || a.StartedAt.After(e.At) {
			continue
		}
		if tries++; a.StartedAt.Before(from) {
			from = a.StartedAt
		}
	}

	failure := ""
	if end.Outcome.Failed() {
		failure = string(end.Outcome)
	}
	attributes := []attribute.KeyValue{attribute.String("gen_ai.operation.name", "invoke_agent"), attribute.String("gen_ai.agent.name", r.Agent),
		attribute.Int64("rouse.run", r.ID), attribute.String("rouse.trigger", string(r.Trigger)), attribute.String("rouse.outcome", string(end.Outcome)), attribute.Int("rouse.attempts", tries)}
	if r.Job != "" {
		attributes = append(attributes, attribute.String("rouse.job", r.Job))
	}
	if end.Exit != "" {
		attributes = append(attributes, attribute.String("rouse.exit", string(end.Exit)))
	}
	if r.Agent == "" {
		attributes = attributes[2:] // nobody was asked
	}
	b.span(b.root, trace.SpanContext{}, "run "+r.Job, trace.SpanKindInternal, from, e.At, failure, attributes...)
}

// attempt makes the spans of the steps and calls of an attempt.
func (b *oneTrace) attempt(ctx context.Context, a ledger.Attempt) error {
	steps, err := b.t.o.Ledger.Steps(ctx, a.Run)
	if err != nil {
		return err
	}
	calls, err := b.t.o.Ledger.Calls(ctx, a.Run)
	if err != nil {
		return err
	}

	byKey := map[string]trace.SpanContext{} // of the attempt's calls
	for _, c := range calls {
		if c.Attempt == a.Number {
			byKey[c.Key] = b.context(callName(c))
		}
	}

	for _, s := range steps {
		if s.Attempt == a.Number {
			b.step(a, s, byKey)
		}
	}
	for _, c := range calls {
		if c.Attempt == a.Number {
			b.call(a, c)
		}
	}
	return nil
}

func (b *oneTrace) step(a ledger.Attempt, s ledger.Step, byKey map[string]trace.SpanContext) {
	parent := b.root
	if of, ok := byKey[s.ParentCall]; ok && s.ParentCall != "" {
		parent = of
	}

	to, failure := s.FinishedAt, ""
	if to.IsZero() {
		to, failure = a.FinishedAt, "cut off"
	}

	name, kind := fmt.Sprintf("step %d", s.Number), trace.SpanKindInternal
	attributes := []attribute.KeyValue{attribute.Int64("rouse.run", s.Run), attribute.Int("rouse.attempt", s.Attempt), attribute.Int("rouse.step", s.Number)}
	if s.Model != "" { // a model was asked; its turn ends with its answer, its calls come after it
		name, kind = "chat "+s.Model, trace.SpanKindClient
		attributes = append(attributes, attribute.String("gen_ai.operation.name", "chat"), attribute.String("rouse.model", s.Model),
			attribute.Int64("gen_ai.usage.input_tokens", s.Usage.TokensIn), attribute.Int64("gen_ai.usage.output_tokens", s.Usage.TokensOut),
			attribute.Float64("rouse.cost_usd", float64(s.Usage.CostMicroUSD)/1e6))
		if m, ok := b.t.o.Model(s.Model); ok {
			attributes = append(attributes, attribute.String("gen_ai.provider.name", m.Provider), attribute.String("gen_ai.request.model", m.Name))
		}
	}
	b.span(b.context(stepName(s.Attempt, s.Number)), parent, name, kind, s.StartedAt, to, failure, attributes...)
}

func (b *oneTrace) call(a ledger.Attempt, c ledger.Call) {
	name := c.Tool
	if !toolName.MatchString(name) {
		name = "unknown"
	}

	to, failure := c.FinishedAt, ""
	switch {
	case to.IsZero():
		to, failure = a.FinishedAt, "cut off"
	case c.State == domain.CallFailed, c.State == domain.CallInterrupted, c.State == domain.CallUncertain:
		failure = string(c.State)
	}

	b.span(b.context(callName(c)), b.context(stepName(c.Attempt, c.Step)), "execute_tool "+name, trace.SpanKindInternal, c.StartedAt, to, failure,
		attribute.String("gen_ai.operation.name", "execute_tool"), attribute.String("gen_ai.tool.name", name), attribute.Int64("rouse.run", c.Run), attribute.Int("rouse.attempt", c.Attempt),
		attribute.Int("rouse.step", c.Step), attribute.Int("rouse.call", c.Index), attribute.String("rouse.call.state", string(c.State)), attribute.String("rouse.call.effect", string(c.Effect)))
}

// idKey is where a context holds what the span that is being started is known by.
type idKey struct{}

// derived gives spans the ids that follow from the record.
type derived struct{}

// NewIDs implements sdk.IDGenerator.
func (derived) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	c, _ := ctx.Value(idKey{}).(trace.SpanContext)
	return c.TraceID(), c.SpanID()
}

// NewSpanID implements sdk.IDGenerator.
func (derived) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	c, _ := ctx.Value(idKey{}).(trace.SpanContext)
	return c.SpanID()
}
