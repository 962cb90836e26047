package traces_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/hex"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	trace "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"rouse/cmd/internal/traces"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/steps"
)

// receiver is a test server for traces.
type receiver struct {
	*httptest.Server
	mu     sync.Mutex
	spans  []*trace.Span
	raw    bytes.Buffer
	header http.Header
	status int
	hang   chan struct{} // if set, the response waits until it is closed
	busy   int           // number of requests to reject before accepting one
	reject int64         // number of spans to report as rejected
}

func newReceiver(t *testing.T) *receiver {
	r := &receiver{status: http.StatusOK}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		zipped, err := gzip.NewReader(q.Body)
		if err != nil {
			t.Error(err)
			return
		}
		raw, err := io.ReadAll(zipped)
		if err != nil {
			t.Error(err)
			return
		}
		var got collector.ExportTraceServiceRequest
		if err := proto.Unmarshal(raw, &got); err != nil || q.URL.Path != "/v1/traces" {
			t.Errorf("%s: %v", q.URL.Path, err)
			return
		}

		r.mu.Lock()
		hang, status := r.hang, r.status
		if r.busy > 0 {
			r.busy--
			status = http.StatusServiceUnavailable
			w.Header().Set("Retry-After", "0")
		}
		r.header = q.Header.Clone()
		r.mu.Unlock()
		if hang != nil {
			select {
			case <-hang:
			case <-q.Context().Done():
				return
			}
		}
		if status != http.StatusOK {
			http.Error(w, "echo "+q.Header.Get("X-Key"), status)
			return
		}

		r.mu.Lock()
		defer r.mu.Unlock()
		r.raw.Write(raw)
		for _, resource := range got.ResourceSpans {
			for _, scope := range resource.ScopeSpans {
				r.spans = append(r.spans, scope.Spans...)
			}
		}
		answer, err := proto.Marshal(&collector.ExportTraceServiceResponse{PartialSuccess: &collector.ExportTracePartialSuccess{RejectedSpans: r.reject, ErrorMessage: "canary answer"}})
		if err != nil {
			t.Error(err)
		}
		w.Header().Set("Content-Type", "application/x-protobuf")
		w.Write(answer)
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) got() []*trace.Span {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]*trace.Span(nil), r.spans...)
}

func open(t *testing.T) *ledger.Ledger {
	t.Helper()
	l, err := ledger.Open(t.Context(), ledger.Options{Path: filepath.Join(t.TempDir(), "ledger.db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// start runs an exporter. stop ends it and returns its log.
func start(t *testing.T, l *ledger.Ledger, url string) (tr *traces.Traces, stop func() string) {
	t.Helper()
	var said bytes.Buffer
	tr, err := traces.New(t.Context(), traces.Options{Ledger: l, URL: url + "/v1/traces", Headers: map[string]string{"X-Key": "canary-key"}, Version: "v1", Logger: slog.New(slog.NewTextHandler(&said, nil)),
		Model: func(name string) (traces.Model, bool) {
			return traces.Model{Provider: "openai", Name: "gpt-x"}, name == "big"
		}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan error, 1)
	go func() { over <- tr.Run(ctx) }()
	return tr, func() string {
		cancel()
		if err := <-over; err != nil {
			t.Error(err)
		}
		return said.String()
	}
}

func try(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func enqueue(t *testing.T, l *ledger.Ledger) int64 {
	t.Helper()
	a, err := l.Enqueue(t.Context(), ledger.Request{Job: "report", Agent: "ann", Trigger: domain.TriggerManual, Detail: ledger.TriggerDetail{Prompt: "canary prompt"}})
	try(t, err)
	return a[0].Run
}

// attempt records an attempt with a model's step, a call and a nested step.
func attempt(t *testing.T, l *ledger.Ledger, run int64, tool string) ledger.Attempt {
	t.Helper()
	ctx := t.Context()
	_, a, err := l.StartAttempt(ctx, run)
	try(t, err)
	at := time.Now()
	call := ledger.Call{Step: 1, Index: 0, ID: "id", Key: "key", Tool: tool, Args: json.RawMessage(`{"path":"canary args"}`), Effect: domain.EffectRead, StartedAt: at}
	try(t, l.Steps.StartStep(ctx, a, steps.Step{Number: 1, StartedAt: at}))
	try(t, l.Steps.FinishStep(ctx, a, steps.Step{Number: 1, Model: "big", Text: "canary text", Message: json.RawMessage(`{}`), Usage: ledger.Usage{TokensIn: 11, TokensOut: 7, CostMicroUSD: 1500}, FinishedAt: at}))
	try(t, l.Steps.StartCall(ctx, a, call))
	try(t, l.Steps.StartStep(ctx, a, steps.Step{Number: 2, ParentCall: "key", StartedAt: at}))
	try(t, l.Steps.FinishStep(ctx, a, steps.Step{Number: 2, FinishedAt: at}))
	call.State, call.Envelope, call.FinishedAt = domain.CallFailed, json.RawMessage(`{"ok":false,"message":"canary result"}`), at
	try(t, l.Steps.FinishCall(ctx, a, call))
	return a
}

func attribute(s *trace.Span, key string) string {
	for _, a := range s.Attributes {
		if a.Key == key {
			return a.Value.String()
		}
	}
	return ""
}

// TestOneTraceOverAttempts checks that a run is one trace, even if another process retries it.
// Steps and calls have the right parents, and no content is exported. A restart by a person begins
// another trace.
func TestOneTraceOverAttempts(t *testing.T) {
	t.Parallel()
	l, r := open(t), newReceiver(t)
	early := enqueue(t, l)
	before := attempt(t, l, early, "file_read")
	try(t, l.Finish(t.Context(), before, ledger.Result{Outcome: domain.OutcomeSuccess}))

	run := enqueue(t, l)
	_, stop := start(t, l, r.URL)
	first := attempt(t, l, run, "file_read")
	try(t, l.Finish(t.Context(), first, ledger.Result{Outcome: domain.OutcomeError, Error: "canary error", RetryAt: time.Now().Add(-time.Second)}))
	stop()

	_, stop = start(t, l, r.URL)
	second := attempt(t, l, run, "canary tool, in words of a model")
	try(t, l.Finish(t.Context(), second, ledger.Result{Outcome: domain.OutcomeError, Exit: domain.ExitFinalResponse, Summary: "canary summary", Error: "canary error"}))
	stop()

	spans := r.got()
	names := map[string]int{}
	byID := map[string]*trace.Span{}
	for _, s := range spans {
		names[s.Name]++
		byID[hex.EncodeToString(s.SpanId)] = s
		if string(s.TraceId) != string(spans[0].TraceId) {
			t.Errorf("%s is of the trace %x, not %x", s.Name, s.TraceId, spans[0].TraceId)
		}
	}
	if len(spans) != 7 || len(byID) != 7 || names["chat big"] != 2 || names["step 2"] != 2 || names["execute_tool file_read"] != 1 || names["execute_tool unknown"] != 1 || names["run report"] != 1 {
		t.Fatalf("%d spans, %d ids: %v", len(spans), len(byID), names)
	}

	parent := map[string]string{"run report": "", "chat big": "run report", "execute_tool file_read": "chat big", "execute_tool unknown": "chat big"}
	for _, s := range spans {
		of := byID[hex.EncodeToString(s.ParentSpanId)]
		want, fixed := parent[s.Name]
		switch {
		case s.Name == "step 2" && (of == nil || !strings.HasPrefix(of.Name, "execute_tool")), fixed && want == "" && of != nil, fixed && want != "" && (of == nil || of.Name != want):
			t.Errorf("%s is below %v", s.Name, of)
		}
		if s.Name == "run report" && (s.Status.GetCode() != trace.Status_STATUS_CODE_ERROR || !strings.Contains(attribute(s, "rouse.attempts"), "2") || !strings.Contains(attribute(s, "gen_ai.agent.name"), "ann")) {
			t.Errorf("%v", s)
		}
		if s.Name == "chat big" && (!strings.Contains(attribute(s, "gen_ai.usage.input_tokens"), "11") || !strings.Contains(attribute(s, "gen_ai.request.model"), "gpt-x")) {
			t.Errorf("%v", s)
		}
	}
	if bytes.Contains(r.raw.Bytes(), []byte("canary")) {
		t.Errorf("what was said is in the traces: %q", r.raw.String())
	}
	if r.header.Get("X-Key") != "canary-key" {
		t.Error("the headers were not sent")
	}

	_, stop = start(t, l, r.URL)
	_, err := l.Retry(t.Context(), run)
	try(t, err)
	third := attempt(t, l, run, "file_read")
	try(t, l.Finish(t.Context(), third, ledger.Result{Outcome: domain.OutcomeSuccess}))
	stop()
	again := r.got()[7:]
	if len(again) != 4 || string(again[0].TraceId) == string(spans[0].TraceId) {
		t.Errorf("%d spans of %x, after %x", len(again), again[0].TraceId, spans[0].TraceId)
	}
	for _, s := range again {
		if s.Name == "run report" && !strings.Contains(attribute(s, "rouse.attempts"), "1") {
			t.Errorf("%v", s)
		}
	}
}

// TestInterruptedAttempt checks that steps and calls left open by a process are marked "cut off"
// and sent once.
func TestInterruptedAttempt(t *testing.T) {
	t.Parallel()
	l, r := open(t), newReceiver(t)
	_, stop := start(t, l, r.URL)
	_, a, err := l.StartAttempt(t.Context(), enqueue(t, l))
	try(t, err)
	try(t, l.Steps.StartStep(t.Context(), a, steps.Step{Number: 1, StartedAt: time.Now()}))
	try(t, l.Interrupt(t.Context(), a, "canary", &ledger.Result{Outcome: domain.OutcomeInterrupted}))
	stop()

	spans := r.got()
	if len(spans) != 2 || spans[0].Name != "step 1" || spans[0].Status.GetMessage() != "cut off" || spans[1].Name != "run report" {
		t.Errorf("%v", spans)
	}
}

// TestRefusedTraces checks that rejected traces are logged once, without request or response
// contents, and cause no other failure. After the receiver recovers, the problem is cleared.
func TestRefusedTraces(t *testing.T) {
	t.Parallel()
	l, r := open(t), newReceiver(t)
	r.status = http.StatusUnauthorized
	tr, stop := start(t, l, r.URL)
	for range 3 {
		a := attempt(t, l, enqueue(t, l), "file_read")
		try(t, l.Finish(t.Context(), a, ledger.Result{Outcome: domain.OutcomeSuccess}))
	}
	said := stop()
	if strings.Count(said, "traces are not sent") != 1 || strings.Contains(said, "canary") || strings.Contains(said, "echo") {
		t.Errorf("said %q", said)
	}
	if why := tr.Problem(); !strings.Contains(why, "401") || !strings.Contains(why, "3 attempts given up") || strings.Contains(why, "canary") {
		t.Errorf("%q", why)
	}

	r.mu.Lock()
	r.status = http.StatusOK
	r.mu.Unlock()
	tr, stop = start(t, l, r.URL)
	a := attempt(t, l, enqueue(t, l), "file_read")
	try(t, l.Finish(t.Context(), a, ledger.Result{Outcome: domain.OutcomeSuccess}))
	stop()
	if len(r.got()) != 4 || tr.Problem() != "" {
		t.Errorf("%d spans, %q", len(r.got()), tr.Problem())
	}
}

// TestOverloadedReceiver checks that an overloaded receiver is retried after the delay it requests.
// A partial success is reported.
func TestOverloadedReceiver(t *testing.T) {
	t.Parallel()
	l, r := open(t), newReceiver(t)
	r.busy = 2
	tr, stop := start(t, l, r.URL)
	a := attempt(t, l, enqueue(t, l), "file_read")
	try(t, l.Finish(t.Context(), a, ledger.Result{Outcome: domain.OutcomeSuccess}))
	stop()
	if len(r.got()) != 4 || tr.Problem() != "" {
		t.Errorf("%d spans after two refusals, %q", len(r.got()), tr.Problem())
	}

	r.reject = 3
	tr, stop = start(t, l, r.URL)
	a = attempt(t, l, enqueue(t, l), "file_read")
	try(t, l.Finish(t.Context(), a, ledger.Result{Outcome: domain.OutcomeSuccess}))
	stop()
	if why := tr.Problem(); !strings.Contains(why, "did not take 3 of the spans") || strings.Contains(why, "canary") {
		t.Errorf("%q", why)
	}
}

// TestSlowReceiver checks that a receiver that does not respond delays no run, and delays shutdown
// only up to the limit.
func TestSlowReceiver(t *testing.T) {
	t.Parallel()
	l, r := open(t), newReceiver(t)
	r.hang = make(chan struct{})
	defer close(r.hang)
	_, stop := start(t, l, r.URL)
	a := attempt(t, l, enqueue(t, l), "file_read")
	try(t, l.Finish(t.Context(), a, ledger.Result{Outcome: domain.OutcomeSuccess}))

	began := time.Now()
	said := stop()
	if took := time.Since(began); took > 9*time.Second || !strings.Contains(said, "were not sent: the daemon stops") {
		t.Errorf("the stop took %s and said %q", took, said)
	}
}
