// Package traces exports runs as OpenTelemetry traces to a configured receiver.
//
// The ledger serves as the queue: when an attempt ends, its steps and calls are read from the
// ledger and sent. The run's own span is sent when the run ends. IDs are derived from the ledger's
// ID and the numbers of run, step and call. A run is therefore one trace, even across attempts and
// processes. Runs never wait for the receiver.
//
// Traces contain no prompts, arguments, results, summaries or error texts.
package traces

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	common "go.opentelemetry.io/proto/otlp/common/v1"
	resource "go.opentelemetry.io/proto/otlp/resource/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"

	"rouse/internal/ledger"
	"rouse/internal/ledger/event"
	"rouse/internal/text"
)

const (
	// readEvery is the minimum time between two reads of a busy ledger.
	readEvery = time.Second
	// batch is the maximum number of spans per request.
	batch = 512
	// closing is the maximum time to send the remaining spans at shutdown.
	closing = 5 * time.Second
)

// Model describes a configured model as its provider names it.
type Model struct{ Provider, Name string }

// Options holds the settings of a Traces.
type Options struct {
	Ledger  *ledger.Ledger
	URL     string // address of the receiver
	Headers map[string]string
	Model   func(name string) (Model, bool) // looks up a model by its configured name
	Version string
	Logger  *slog.Logger
}

// Traces exports traces.
type Traces struct {
	o        Options
	sender   *sender
	resource *resource.Resource

	after int64 // ID of the last event read
	sent  ended // attempt sent last

	mu      sync.Mutex
	problem string
	lost    int
}

// ended identifies an attempt that has ended.
type ended struct {
	run     int64
	attempt int
}

// New returns an exporter that starts with the next event. Earlier events are not sent.
func New(ctx context.Context, o Options) (*Traces, error) {
	t := &Traces{o: o, sender: newSender(o.URL, o.Headers), resource: &resource.Resource{Attributes: []*common.KeyValue{
		textAttribute("service.name", "rouse"), textAttribute("service.version", o.Version), textAttribute("service.instance.id", o.Ledger.ID())}}}
	var err error
	t.after, err = o.Ledger.Events.Newest(ctx)
	return t, err
}

// To returns the address of the receiver.
func (t *Traces) To() string { return t.o.URL }

// Problem returns why traces do not arrive, or "" if they do.
func (t *Traces) Problem() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.problem != "" && t.lost > 0 {
		return fmt.Sprintf("%s; %s given up", t.problem, text.Plural(t.lost, "attempt"))
	}
	return t.problem
}

// Run exports until ctx is done. Then it sends the remaining spans, for a limited time.
func (t *Traces) Run(ctx context.Context) error {
	event.Poll(ctx, t.o.Ledger.DB, readEvery, func() {
		if err := t.read(ctx); err != nil && ctx.Err() == nil {
			t.failed(err)
		}
	})

	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), closing)
	defer cancel()
	if err := t.read(last); err != nil {
		t.o.Logger.Warn("traces of the last runs were not sent: the daemon stops", "error", err)
	}
	t.sender.client.HTTPClient.CloseIdleConnections()
	return nil
}

// read sends the spans of the events since the last call.
func (t *Traces) read(ctx context.Context) error {
	return event.Each(ctx, t.o.Ledger.Events, event.Filter{After: t.after}, func(e ledger.Event) error {
		if err := t.send(ctx, e); err != nil {
			return err
		}
		t.after = e.ID
		return nil
	})
}

// send sends the spans of an event. If the upload fails, they are dropped.
func (t *Traces) send(ctx context.Context, e ledger.Event) error {
	spans, of, err := t.spansOf(ctx, e)
	if err != nil || len(spans) == 0 {
		return err
	}

	for some := range slices.Chunk(spans, batch) {
		if err := t.sender.upload(ctx, &otlp.ResourceSpans{Resource: t.resource, ScopeSpans: []*otlp.ScopeSpans{
			{Scope: &common.InstrumentationScope{Name: "rouse", Version: t.o.Version}, Spans: some}}}); err != nil {
			if ctx.Err() != nil {
				return err
			}
			t.lose(err)
			t.sent = of
			return nil
		}
	}

	t.sent = of
	t.arrived()
	return nil
}

// failed records an error and logs it if exporting worked before.
func (t *Traces) failed(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.problem == "" {
		t.o.Logger.Warn("traces are not sent; runs go on, and this is not said again until they are", "to", t.o.URL, "error", err)
	}
	t.problem = err.Error()
}

func (t *Traces) lose(err error) {
	t.failed(err)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lost++
}

func (t *Traces) arrived() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.problem != "" {
		t.o.Logger.Info("traces are sent again", "to", t.o.URL, "given_up", t.lost)
	}
	t.problem, t.lost = "", 0
}
