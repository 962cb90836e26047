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

	common "go.opentelemetry.io/proto/otlp/common/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"

	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/event"
	"rouse/internal/ledger/steps"
)

// ending lists the events that end an attempt.
var ending = []string{"run.finished", "run.waiting", "run.retry", "run.postponed", "run.interrupted"}

// toolName matches valid tool names. A model can request a tool by any text, which must not get
// into a trace.
var toolName = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)

// spansOf returns the spans for an event: the attempt it ended, and the run if the run is finished.
func (t *Traces) spansOf(ctx context.Context, e ledger.Event) (spans []*otlp.Span, of ended, err error) {
	if e.Run == 0 || !slices.Contains(ending, e.Kind) {
		return nil, of, nil
	}
	run, err := t.o.Ledger.Runs.Get(ctx, e.Run)
	if errors.Is(err, ledger.ErrNotFound) {
		return nil, of, nil // the run was removed in the meantime
	}
	if err != nil {
		return nil, of, err
	}
	attempts, err := t.o.Ledger.Runs.Attempts(ctx, e.Run)
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
		// An interrupted attempt that is not retried has two events. Its spans were sent with the
		// first.
		if of != t.sent {
			if err := b.attempt(ctx, a); err != nil {
				return nil, of, err
			}
		}
	}
	if e.Kind == "run.finished" {
		b.run(e, attempts)
	}
	return b.spans, of, nil
}

// attemptOf returns the attempt that an event ended. It returns false if the run ended in the queue
// or while it waited.
func attemptOf(e ledger.Event, attempts []ledger.Attempt) (ledger.Attempt, bool) {
	for _, a := range slices.Backward(attempts) {
		if a.FinishedAt.Equal(e.At) {
			return a, true
		}
	}
	return ledger.Attempt{}, false
}

// began returns the time of the previous end of a run that a person restarted, which starts a new
// trace. It returns zero if the run was not restarted.
func (t *Traces) began(ctx context.Context, e ledger.Event, attempts []ledger.Attempt) (began time.Time, err error) {
	if len(attempts) < 2 {
		return began, nil // a restarted run has at least two attempts
	}

	err = event.Each(ctx, t.o.Ledger.Events, event.Filter{Run: e.Run}, func(earlier ledger.Event) error {
		if earlier.ID < e.ID && earlier.Kind == "run.finished" {
			began = earlier.At
		}
		return nil
	})
	return began, err
}

// oneTrace builds the spans of a run.
type oneTrace struct {
	t     *Traces
	id    []byte
	of    ledger.Run
	began time.Time // only attempts after this time belong to the trace
	root  []byte    // ID of the root span
	spans []*otlp.Span
}

func newTrace(t *Traces, run ledger.Run, began time.Time) *oneTrace {
	b := &oneTrace{t: t, of: run, began: began}
	name := fmt.Sprintf("rouse run %s %d", t.o.Ledger.EpochOf(run.ID).ID, run.ID)
	if !began.IsZero() {
		name += fmt.Sprintf(" after %d", began.UnixMilli())
	}
	sum := sha256.Sum256([]byte(name))
	b.id = sum[:16]
	b.root = b.spanID("run")
	return b
}

// spanID returns the ID of a span, derived from its name within the run.
func (b *oneTrace) spanID(name string) []byte {
	sum := sha256.Sum256(slices.Concat(b.id, []byte(name)))
	return sum[:8]
}

func stepName(attempt, step int) string { return fmt.Sprintf("step %d.%d", attempt, step) }

func callName(c ledger.Call) string { return fmt.Sprintf("call %d.%d.%d", c.Attempt, c.Step, c.Index) }

// span adds a finished span. If parent is nil, the span is the root.
func (b *oneTrace) span(id, parent []byte, name string, kind otlp.Span_SpanKind, from, to time.Time, failure string, attributes ...*common.KeyValue) {
	s := &otlp.Span{TraceId: b.id, SpanId: id, ParentSpanId: parent, Name: name, Kind: kind, Attributes: attributes,
		StartTimeUnixNano: uint64(from.UnixNano()), EndTimeUnixNano: uint64(to.UnixNano()), Status: &otlp.Status{}}
	if failure != "" {
		s.Status = &otlp.Status{Code: otlp.Status_STATUS_CODE_ERROR, Message: failure}
	}
	b.spans = append(b.spans, s)
}

func textAttribute(key, value string) *common.KeyValue {
	return &common.KeyValue{Key: key, Value: &common.AnyValue{Value: &common.AnyValue_StringValue{StringValue: value}}}
}

func intAttribute[T int | int64](key string, value T) *common.KeyValue {
	return &common.KeyValue{Key: key, Value: &common.AnyValue{Value: &common.AnyValue_IntValue{IntValue: int64(value)}}}
}

// run adds the root span.
func (b *oneTrace) run(e ledger.Event, attempts []ledger.Attempt) {
	r := b.of
	var end struct {
		Outcome domain.Outcome `json:"outcome"`
		Exit    domain.Exit    `json:"exit"`
	}
	_ = json.Unmarshal(e.Data, &end) // missing values stay empty

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
	attributes := []*common.KeyValue{textAttribute("gen_ai.operation.name", "invoke_agent"), textAttribute("gen_ai.agent.name", r.Agent),
		intAttribute("rouse.run", r.ID), textAttribute("rouse.trigger", string(r.Trigger)), textAttribute("rouse.outcome", string(end.Outcome)), intAttribute("rouse.attempts", tries)}
	if r.Job != "" {
		attributes = append(attributes, textAttribute("rouse.job", r.Job))
	}
	if end.Exit != "" {
		attributes = append(attributes, textAttribute("rouse.exit", string(end.Exit)))
	}
	if r.Agent == "" {
		attributes = attributes[2:] // no agent was invoked
	}
	b.span(b.root, nil, "run "+r.Job, otlp.Span_SPAN_KIND_INTERNAL, from, e.At, failure, attributes...)
}

// attempt adds the spans of an attempt's steps and calls.
func (b *oneTrace) attempt(ctx context.Context, a ledger.Attempt) error {
	steps, err := b.t.o.Ledger.Steps.List(ctx, a.Run)
	if err != nil {
		return err
	}
	calls, err := b.t.o.Ledger.Steps.Calls(ctx, a.Run)
	if err != nil {
		return err
	}

	byKey := map[string][]byte{} // calls of this attempt
	for _, c := range calls {
		if c.Attempt == a.Number {
			byKey[c.Key] = b.spanID(callName(c))
			b.call(a, c)
		}
	}
	for _, s := range steps {
		if s.Attempt == a.Number {
			b.step(a, s, byKey)
		}
	}
	return nil
}

func (b *oneTrace) step(a ledger.Attempt, s steps.Step, byKey map[string][]byte) {
	parent := b.root
	if of, ok := byKey[s.ParentCall]; ok && s.ParentCall != "" {
		parent = of
	}

	to, failure := s.FinishedAt, ""
	if to.IsZero() {
		to, failure = a.FinishedAt, "cut off"
	}

	name, kind := fmt.Sprintf("step %d", s.Number), otlp.Span_SPAN_KIND_INTERNAL
	attributes := []*common.KeyValue{intAttribute("rouse.run", s.Run), intAttribute("rouse.attempt", s.Attempt), intAttribute("rouse.step", s.Number)}
	// The span of a model's turn ends with the response. Its calls follow it.
	if s.Model != "" {
		name, kind = "chat "+s.Model, otlp.Span_SPAN_KIND_CLIENT
		attributes = append(attributes, textAttribute("gen_ai.operation.name", "chat"), textAttribute("rouse.model", s.Model),
			intAttribute("gen_ai.usage.input_tokens", s.Usage.TokensIn), intAttribute("gen_ai.usage.output_tokens", s.Usage.TokensOut),
			&common.KeyValue{Key: "rouse.cost_usd", Value: &common.AnyValue{Value: &common.AnyValue_DoubleValue{DoubleValue: float64(s.Usage.CostMicroUSD) / 1e6}}})
		if m, ok := b.t.o.Model(s.Model); ok {
			attributes = append(attributes, textAttribute("gen_ai.provider.name", m.Provider), textAttribute("gen_ai.request.model", m.Name))
		}
	}
	b.span(b.spanID(stepName(s.Attempt, s.Number)), parent, name, kind, s.StartedAt, to, failure, attributes...)
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

	b.span(b.spanID(callName(c)), b.spanID(stepName(c.Attempt, c.Step)), "execute_tool "+name, otlp.Span_SPAN_KIND_INTERNAL, c.StartedAt, to, failure,
		textAttribute("gen_ai.operation.name", "execute_tool"), textAttribute("gen_ai.tool.name", name), intAttribute("rouse.run", c.Run), intAttribute("rouse.attempt", c.Attempt),
		intAttribute("rouse.step", c.Step), intAttribute("rouse.call", c.Index), textAttribute("rouse.call.state", string(c.State)), textAttribute("rouse.call.effect", string(c.Effect)))
}
