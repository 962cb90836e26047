package runlog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"rouse/agent/loop"
	"rouse/agent/redact"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/event"
	"rouse/internal/ledger/ledgertest"
)

// recordedOp is one operation that the loop records, in one of the parallel lanes of a step.
type recordedOp struct {
	kind          string
	before, takes time.Duration
}

// recordedPlan holds the operations of parallel lanes and the delays of the writer.
type recordedPlan struct {
	lanes  [][]recordedOp
	writer []time.Duration // duration of each write, in turn
	asks   bool
	ends   bool // commit the last entries with the result
}

func drawPlan(rt *rapid.T) recordedPlan {
	pause := rapid.SampledFrom([]time.Duration{0, 0, 0, time.Millisecond, 30 * time.Millisecond, maxLag, 3 * maxLag})
	op := rapid.Custom(func(rt *rapid.T) recordedOp {
		return recordedOp{
			kind:   rapid.SampledFrom([]string{"read", "read", "write", "external", "database", "replayed", "deduped", "module", "module", "failing module", "model"}).Draw(rt, "kind"),
			before: pause.Draw(rt, "before"), takes: pause.Draw(rt, "takes"),
		}
	})
	return recordedPlan{
		lanes:  rapid.SliceOfN(rapid.SliceOfN(op, 1, 8), 1, 6).Draw(rt, "lanes"),
		writer: rapid.SliceOfN(pause, 1, 6).Draw(rt, "writer"),
		asks:   rapid.Bool().Draw(rt, "asks"), ends: rapid.Bool().Draw(rt, "ends"),
	}
}

// recordedEntry holds the events of an entry, when it was given to the recorder and when the
// recorder returned.
type recordedEntry struct {
	name        string
	came, taken int64
	tells       bool
}

// recordedLanes plays a plan.
type recordedLanes struct {
	recorder *Recorder
	ledger   *ledger.Ledger
	attempt  ledger.Attempt
	asks     bool
	clock    atomic.Int64

	mu      sync.Mutex
	entries []recordedEntry
	errs    []error
}

func (p *recordedLanes) fail(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.errs = append(p.errs, fmt.Errorf(format, args...))
}

// give adds an entry to the recorder, which records events with these names.
func (p *recordedLanes) give(tells bool, do func() error, names ...string) {
	came := p.clock.Add(1)
	err := do()
	taken := p.clock.Add(1)
	if err != nil {
		p.fail("%v: %w", names, err)
	}

	p.mu.Lock()
	defer p.mu.Unlock()
	for _, n := range names {
		p.entries = append(p.entries, recordedEntry{n, came, taken, tells})
	}
}

// told returns the entries that have given a result so far.
func (p *recordedLanes) told() (names []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.entries {
		if e.tells {
			names = append(names, e.name)
		}
	}
	return names
}

// events returns the names of the ledger's entries in order.
func (p *recordedLanes) events(ctx context.Context) (names []string) {
	events, err := p.ledger.Events.List(ctx, event.Filter{Run: p.attempt.Run})
	if err != nil {
		p.fail("events: %w", err)
	}
	for _, e := range events {
		var data struct {
			Step int
			Tool string
		}
		if err := json.Unmarshal(e.Data, &data); err != nil {
			p.fail("event %s: %w", e.Kind, err)
		}
		switch {
		case data.Tool != "":
			names = append(names, e.Kind+" "+data.Tool)
		case data.Step > 1:
			names = append(names, fmt.Sprint(e.Kind, " ", data.Step))
		}
	}
	return names
}

// wantDurable fails the test if an entry is missing in the ledger.
func (p *recordedLanes) wantDurable(ctx context.Context, before string, names ...string) {
	have := p.events(ctx)
	for _, n := range names {
		if !slices.Contains(have, n) {
			p.fail("%s is not durable before %s", n, before)
		}
	}
}

func (p *recordedLanes) play(ctx context.Context, index int, op recordedOp) {
	time.Sleep(op.before)
	now := time.Now()
	name := fmt.Sprintf("%s %d", op.kind, index)
	if op.kind == "model" {
		s := loop.Step{Number: index + 2, ParentCall: "k", StartedAt: now}
		p.give(false, func() error { return p.recorder.StartStep(ctx, s) }, fmt.Sprint("step.started ", s.Number))
		p.wantDurable(ctx, "the model is asked", fmt.Sprint("step.started ", s.Number))
		time.Sleep(op.takes)
		s.FinishedAt = time.Now()
		p.give(p.asks, func() error { return p.recorder.FinishStep(ctx, s) }, fmt.Sprint("step.finished ", s.Number))
		return
	}

	c := loop.Call{Step: 1, Index: index, ID: "c", Key: name, Tool: name, Args: json.RawMessage(`{}`), Effect: domain.EffectRead, State: domain.CallDone, Envelope: json.RawMessage(`{"ok":true}`), StartedAt: now}
	switch op.kind {
	case "write", "external", "database":
		c.Effect = domain.Effect(op.kind)
	case "replayed", "deduped":
		c.State, c.FinishedAt = domain.CallState(op.kind), now
		p.give(op.kind == "deduped", func() error { return p.recorder.AnswerCall(ctx, c) }, "call.started "+name, "call.finished "+name)
		return
	case "module", "failing module":
		c.Effect, c.Once = domain.EffectDatabase, true
	}

	told := p.told()
	p.give(false, func() error { return p.recorder.StartCall(ctx, c) }, "call.started "+name)
	switch {
	case c.Once && !p.asks:
		p.wantDurable(ctx, name, told...)
	case c.Effect != domain.EffectRead:
		p.wantDurable(ctx, name, "call.started "+name)
	}

	time.Sleep(op.takes)
	c.FinishedAt = time.Now()
	if op.kind == "failing module" {
		c.State = domain.CallFailed
	}
	p.give(p.asks || op.kind != "module", func() error { return p.recorder.FinishCall(ctx, c) }, "call.finished "+name)
	if c.Effect == domain.EffectWrite || c.Effect == domain.EffectExternal {
		p.wantDurable(ctx, "its result is used", "call.finished "+name)
	}
}

// check plays a plan against a new ledger and returns the errors in its record.
func (plan recordedPlan) check(t *testing.T, dir string) error {
	ctx := t.Context()
	path := filepath.Join(dir, "ledger.db")
	if err := ledgertest.Blank(path); err != nil {
		return err
	}
	l, err := ledger.Open(ctx, ledger.Options{Path: path})
	if err != nil {
		return err
	}
	defer l.Close()

	accepted, err := l.Enqueue(ctx, ledger.Request{Job: "j", Agent: "a", Trigger: domain.TriggerAPI})
	if err != nil {
		return err
	}
	_, a, err := l.StartAttempt(ctx, accepted[0].Run)
	if err != nil {
		return err
	}

	var writes, writing atomic.Int64
	p := &recordedLanes{ledger: l, attempt: a, asks: plan.asks}
	p.recorder = NewRecorder(func(ctx context.Context, a ledger.Attempt, entries ...ledger.Entry) error {
		if writing.Add(1) != 1 {
			p.fail("two flushes write at a time")
		}
		defer writing.Add(-1)
		time.Sleep(plan.writer[int(writes.Add(1))%len(plan.writer)])
		return l.Steps.Record(ctx, a, entries...)
	}, a, redact.New(nil), plan.asks)
	if plan.ends {
		p.recorder.LeaveEnd()
	}

	errs := []error{p.recorder.StartStep(ctx, loop.Step{Number: 1, StartedAt: time.Now()}), p.recorder.FinishStep(ctx, loop.Step{Number: 1})}
	var all sync.WaitGroup
	for i, ops := range plan.lanes {
		all.Go(func() {
			for j, op := range ops {
				p.play(ctx, i*100+j, op)
			}
		})
	}
	all.Wait()

	res := ledger.Result{Outcome: domain.OutcomeSuccess}
	errs = append(errs, p.recorder.Flush(ctx), p.recorder.End(ctx, &res, nil), l.Finish(ctx, a, res))
	return errors.Join(append(append(errs, p.order(ctx)), p.errs...)...)
}

// order checks the order in the ledger. An entry that was accepted before another one was added
// must come first.
func (p *recordedLanes) order(ctx context.Context) error {
	have := p.events(ctx)
	if len(have) != len(p.entries) {
		return fmt.Errorf("%d entries are in the ledger, want %d", len(have), len(p.entries))
	}
	for _, first := range p.entries {
		for _, second := range p.entries {
			if first.taken < second.came && slices.Index(have, first.name) > slices.Index(have, second.name) {
				return fmt.Errorf("%s came before %s, and is behind it in the ledger", first.name, second.name)
			}
		}
	}
	return nil
}

// TestRecordKeepsItsOrder records random plans concurrently with a slow writer. The ledger must
// keep the order of the entries. Entries that an effect depends on must be durable before the
// effect.
func TestRecordKeepsItsOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		plan := drawPlan(rt)
		dir := t.TempDir()
		var err error
		synctest.Test(t, func(t *testing.T) { err = plan.check(t, dir) })
		if err != nil {
			rt.Fatal(err)
		}
	})
}

// TestRecordErrorIsFinal checks that after a failed write no entry is written and every caller gets
// the error.
func TestRecordErrorIsFinal(t *testing.T) {
	t.Parallel()
	full := errors.New("the disk is full")
	writes := 0
	r := NewRecorder(func(context.Context, ledger.Attempt, ...ledger.Entry) error {
		writes++
		return full
	}, ledger.Attempt{Run: 1, Number: 1}, redact.New(nil), true)
	r.LeaveEnd()

	ctx := t.Context()
	write := loop.Call{Step: 1, Key: "k", Tool: "t", Effect: domain.EffectWrite}
	read := loop.Call{Step: 1, Index: 1, Key: "l", Tool: "t", Effect: domain.EffectRead}
	failure := r.StartCall(ctx, write)
	for what, err := range map[string]error{
		"a write":             failure,
		"a read":              r.StartCall(ctx, read),
		"the end of a read":   r.FinishCall(ctx, read),
		"a call not made":     r.AnswerCall(ctx, write),
		"a step":              r.StartStep(ctx, loop.Step{Number: 2}),
		"a result":            r.End(ctx, &ledger.Result{Outcome: domain.OutcomeSuccess}, nil),
		"a run that is over":  r.Flush(ctx),
		"a run that has this": r.End(ctx, &ledger.Result{}, failure),
	} {
		if !errors.Is(err, full) || err.Error() != full.Error() {
			t.Errorf("%s: %v, want %v", what, err, full)
		}
	}
	if writes != 1 {
		t.Errorf("%d writes, want 1", writes)
	}
}
