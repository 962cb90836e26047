// Package traces sends what runs did as traces of OpenTelemetry, to a receiver that its owner names.
//
// The record is the source, and the queue: when an attempt of a run ends, its steps and calls are read from the ledger and
// sent, and the run itself once it is over. Ids follow from the ledger's id and the numbers of run, step and call, so that a
// run over several attempts and processes is one trace. Runs wait for nothing of this: a receiver that is slow or gone
// delays the traces alone.
//
// What was said, asked and read is no part of a trace: no prompts, arguments, results, summaries or errors.
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
	"rouse/internal/text"
)

const (
	// readEvery is the minimum time between two readings of a busy ledger.
	readEvery = time.Second
	// batch is how many spans a request carries.
	batch = 512
	// closing bounds what a stop of the daemon waits for.
	closing = 5 * time.Second
)

// Model is what a configured model is to its provider.
type Model struct{ Provider, Name string }

// Options are the parts.
type Options struct {
	Ledger  *ledger.Ledger
	URL     string // where traces are sent
	Headers map[string]string
	Model   func(name string) (Model, bool) // by its configured name
	Version string
	Logger  *slog.Logger
}

// Traces sends them.
type Traces struct {
	o        Options
	sender   *sender
	resource *resource.Resource

	after int64 // the last event that was read
	sent  ended // the attempt that was sent last

	mu      sync.Mutex
	problem string
	lost    int
}

// ended is an attempt that is over.
type ended struct {
	run     int64
	attempt int
}

// New begins behind what is on record now: only what ends from here on is sent.
func New(ctx context.Context, o Options) (*Traces, error) {
	t := &Traces{o: o, sender: newSender(o.URL, o.Headers), resource: &resource.Resource{Attributes: []*common.KeyValue{
		textAttribute("service.name", "rouse"), textAttribute("service.version", o.Version), textAttribute("service.instance.id", o.Ledger.ID())}}}
	var err error
	t.after, err = o.Ledger.NewestEvent(ctx)
	return t, err
}

// To is where they are sent.
func (t *Traces) To() string { return t.o.URL }

// Problem says why traces do not arrive, "" while they do.
func (t *Traces) Problem() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.problem != "" && t.lost > 0 {
		return fmt.Sprintf("%s; %s given up", t.problem, text.Plural(t.lost, "attempt"))
	}
	return t.problem
}

// Run sends until ctx ends, and then what is left, for as long as a stop may wait.
func (t *Traces) Run(ctx context.Context) error {
	ledger.Poll(ctx, t.o.Ledger, readEvery, func() {
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

// read sends what has ended since the last time.
func (t *Traces) read(ctx context.Context) error {
	return ledger.EachEvent(ctx, t.o.Ledger, ledger.EventFilter{After: t.after}, func(e ledger.Event) error {
		if err := t.send(ctx, e); err != nil {
			return err
		}
		t.after = e.ID
		return nil
	})
}

// send sends the spans of an event. If the receiver refuses them, they are lost.
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

// failed says once why nothing is sent.
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
