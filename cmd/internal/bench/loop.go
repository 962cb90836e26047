package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"time"

	"rouse/agent"
	"rouse/agent/loop"
	"rouse/agent/model"
	"rouse/agent/model/anthropic"
	"rouse/agent/model/gemini"
	"rouse/agent/model/ollama"
	"rouse/agent/model/openai"
	"rouse/agent/model/wire"
	"rouse/agent/tool"
	"rouse/agentdb/ledger"
	"rouse/internal/domain"
)

// loopSizes bound the measurement.
type loopSizes struct {
	short, long int // steps of a run
	many        int // runs at once
	least       int // steps, at least, that a figure is of
	turns       int // reservations
	daemon      int // runs of a daemon at once
}

func benchLoop(ctx context.Context, o Options) ([]Figure, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return measureLoop(ctx, self, o.Progress, o.Passes, loopSizes{short: 20, long: 100, many: 64, least: 5000, turns: 500, daemon: 100})
}

// measureLoop compares the loop with a bare one, which alternates with it, and both with
// what it takes to send as many bytes.
func measureLoop(ctx context.Context, self string, progress io.Writer, passes int, sizes loopSizes) (out []Figure, err error) {
	b, end, err := newLoopBench(ctx, self, sizes)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, end()) }()

	for _, f := range loopFormats {
		figures, err := b.format(ctx, f, progress, passes)
		if err != nil {
			return nil, err
		}
		out = append(out, figures...)
	}

	money, err := b.reserve(ctx, progress, passes)
	if err != nil {
		return nil, err
	}

	disk, err := b.disk(passes)
	if err != nil {
		return nil, err
	}

	peak, err := b.daemonPeak(ctx, self, sizes.daemon)
	return slices.Concat(out, money, disk, peak), err
}

// newLoopBench starts a server, and opens a ledger, until end.
func newLoopBench(ctx context.Context, self string, sizes loopSizes) (b *loopBench, end func() error, err error) {
	var ends []func() error
	end = func() error {
		var all error
		// The ledger is closed before its folder is removed.
		for _, f := range slices.Backward(ends) {
			all = errors.Join(all, f())
		}
		return all
	}

	defer func() {
		if err != nil {
			err = errors.Join(err, end())
		}
	}()

	dir, err := os.MkdirTemp("", "rouse-bench")
	if err != nil {
		return nil, nil, err
	}

	ends = append(ends, func() error { return os.RemoveAll(dir) })
	url, stop, err := startStubModel(ctx, self)
	if err != nil {
		return nil, nil, err
	}

	ends = append(ends, stop)
	if err := countSQLiteWrites(); err != nil {
		return nil, nil, err
	}

	l, err := ledger.Open(ctx, ledger.Options{Path: filepath.Join(dir, "ledger.db"), Blobs: filepath.Join(dir, "blobs")})
	if err != nil {
		return nil, nil, err
	}

	ends = append(ends, l.Close)
	pool := http.DefaultTransport.(*http.Transport).Clone()
	// The default of 2 would make the baseline open a new connection for most requests.
	pool.MaxIdleConnsPerHost = sizes.many
	b = &loopBench{url: url, dir: dir, ledger: l, client: &http.Client{Transport: pool}, sizes: sizes}
	b.registry, err = lookupRegistry()

	return b, end, err
}

// loopFormat is a way to speak to a server; path is that of its endpoint.
type loopFormat struct {
	name, path string
	provider   func(url string) (model.Provider, error)
}

var loopFormats = []loopFormat{
	{"openai", "/v1/chat/completions", func(url string) (model.Provider, error) {
		return openai.New(openai.Options{BaseURL: url + "/v1", Model: "stub"})
	}},
	{"anthropic", "/v1/messages", func(url string) (model.Provider, error) {
		return anthropic.New(anthropic.Options{BaseURL: url, Model: "stub"})
	}},
	{"gemini", "/v1beta/models/stub:streamGenerateContent?alt=sse", func(url string) (model.Provider, error) {
		return gemini.New(gemini.Options{BaseURL: url, Model: "stub"})
	}},
	{"ollama", "/api/chat", func(url string) (model.Provider, error) {
		return ollama.New(ollama.Options{Endpoint: wire.Endpoint{BaseURL: url, Model: "stub"}})
	}},
}

// loopBench is one measurement, with a server that answers at once.
type loopBench struct {
	url      string
	client   *http.Client // of the baselines
	dir      string       // of the ledger
	ledger   *ledger.Ledger
	registry *tool.Registry
	sizes    loopSizes
}

// lookupRegistry has the one tool: it reads, as most do.
func lookupRegistry() (*tool.Registry, error) {
	type args struct {
		Path string `json:"path"`
	}
	t, err := tool.Define(tool.Spec{Name: "lookup", Description: lookupAbout, Effect: domain.EffectRead, Class: tool.ClassRead, Scope: tool.ScopeAgent, Writes: tool.WritesNothing, Path: "path"},
		func(_ context.Context, _ tool.Invocation, a args) (tool.Envelope, error) {
			return tool.Success(lookup(a.Path)), nil
		})
	if err != nil {
		return nil, err
	}

	return tool.NewRegistry(t)
}

// kind is one way to make a run of so many steps; below hold its last answer waits.
type kind func(ctx context.Context, steps int, hold bool) error

func (b *loopBench) base(steps int, hold bool) string {
	if hold {
		return b.url + "/hold/" + strconv.Itoa(steps)
	}
	return b.url + "/" + strconv.Itoa(steps)
}

// bare is the baseline in a format.
func (b *loopBench) bare(f loopFormat) kind {
	return func(ctx context.Context, steps int, hold bool) error {
		n, err := bareLoop(ctx, b.client, b.base(steps, hold)+f.path, newBareChat(f.name))
		if err == nil && n != steps {
			err = fmt.Errorf("the bare loop made %d steps of %d", n, steps)
		}
		return err
	}
}

// floor sends what bare sends; it is built before.
func (b *loopBench) floor(f loopFormat) (kind, error) {
	bodies := map[int][][]byte{}
	for _, steps := range []int{b.sizes.short, b.sizes.long} {
		all, err := bareBodies(f.name, steps)
		if err != nil {
			return nil, err
		}
		bodies[steps] = all
	}

	return func(ctx context.Context, steps int, hold bool) error {
		return floorLoop(ctx, b.client, b.base(steps, hold)+f.path, bodies[steps])
	}, nil
}

// whole is the loop with its own adapter; recorded says whether it keeps its record in the
// ledger, on disk.
func (b *loopBench) whole(f loopFormat, recorded bool) (kind, error) {
	providers := map[string]model.Provider{} // one for all runs, as a daemon has it
	for _, steps := range []int{b.sizes.short, b.sizes.long} {
		for _, hold := range []bool{false, true} {
			p, err := f.provider(b.base(steps, hold))
			if err != nil {
				return nil, err
			}
			providers[b.base(steps, hold)] = p
		}
	}

	return func(ctx context.Context, steps int, hold bool) (err error) {
		o := loop.Options{
			Provider: providers[b.base(steps, hold)], Registry: b.registry, Recorder: unrecorded{}, Policy: loop.Headless(),
			// Twice of what is needed: no bound, and no notice before one, belongs to the measurement.
			Bounds: loop.Bounds{Steps: 2 * steps, Calls: 2 * steps}, Invocation: tool.Invocation{Run: 1, Attempt: 1},
			System: benchSystem, Messages: []model.Message{{Role: model.RoleUser, Text: benchPrompt}},
		}

		if recorded {
			a, err := b.attempt(ctx)
			if err != nil {
				return err
			}
			o.Recorder, o.Invocation.Run = agent.NewRecorder(b.ledger, a, nil, true), a.Run
			defer func() { err = errors.Join(err, b.ledger.Finish(ctx, a, ledger.Result{Outcome: domain.OutcomeSuccess})) }()
		}

		res, err := loop.Run(ctx, o)
		if err == nil && (res.Exit != domain.ExitFinalResponse || res.Calls != steps) {
			err = fmt.Errorf("a run of %d calls made %d and ended with %s: %s", steps, res.Calls, res.Exit, res.Error)
		}

		return err
	}, nil
}

// attempt begins a run in the ledger.
func (b *loopBench) attempt(ctx context.Context) (ledger.Attempt, error) {
	accepted, err := b.ledger.Enqueue(ctx, ledger.Request{Job: "j", Agent: "a", Trigger: domain.TriggerAPI})
	if err != nil {
		return ledger.Attempt{}, err
	}
	_, a, err := b.ledger.StartAttempt(ctx, accepted[0].Run)
	return a, err
}

// unrecorded keeps nothing.
type unrecorded struct{}

func (unrecorded) StartStep(context.Context, loop.Step) error  { return nil }
func (unrecorded) FinishStep(context.Context, loop.Step) error { return nil }
func (unrecorded) StartCall(context.Context, loop.Call) error  { return nil }
func (unrecorded) FinishCall(context.Context, loop.Call) error { return nil }
func (unrecorded) AnswerCall(context.Context, loop.Call) error { return nil }
func (unrecorded) Flush(context.Context) error                 { return nil }

// atOnce makes so many runs at the same time.
func atOnce(ctx context.Context, runs int, k kind, steps int, hold bool) error {
	errs := make([]error, runs)
	var all sync.WaitGroup
	for i := range runs {
		all.Go(func() { errs[i] = k(ctx, steps, hold) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// cpu is what a step takes of the processor, in µs, of this whole process.
func (b *loopBench) cpu(ctx context.Context, k kind, runs, steps int) (float64, error) {
	// One round of short runs, or of a run that is alone, takes too little time for a figure: it would say as much of the
	// memory that the system has to give back first.
	rounds := max(1, b.sizes.least/(runs*steps))

	// The garbage of what was measured before must not be collected at this one's cost.
	runtime.GC()
	spent := cpuTime()

	for range rounds {
		if err := atOnce(ctx, runs, k, steps, false); err != nil {
			return 0, err
		}
	}

	// One more than the steps with a call: the final answer is a step too.
	return micros(cpuTime()-spent) / float64(rounds*runs*(steps+1)), nil
}

// memory is what a run holds, in KiB, while it waits for the answer after its last call and
// as many others do.
func (b *loopBench) memory(ctx context.Context, k kind) (float64, error) {
	before := liveMemory()
	over := make(chan error, 1)
	go func() { over <- atOnce(ctx, b.sizes.many, k, b.sizes.long, true) }()

	for held := 0; held < b.sizes.many; {
		select {
		case err := <-over:
			// A run that failed never waits, so the number of held ones would never be reached.
			return 0, errors.Join(errors.New("the runs ended before they were held"), err)
		case <-time.After(5 * time.Millisecond):
		}
		var err error
		if held, err = b.held(ctx); err != nil {
			return 0, err
		}
	}

	after := liveMemory()
	if err := b.release(ctx); err != nil {
		return 0, err
	}

	return float64(after-before) / float64(b.sizes.many) / 1024, <-over
}

// liveMemory is what is reachable, and the stacks.
func liveMemory() int64 {
	live := liveBytes()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return live + int64(m.StackInuse)
}

// loopCosts are those of one kind of run, a value for each pass.
type loopCosts struct {
	kind
	short, long, single, shortSingle []float64 // µs of a step: of many runs at once, and of one
	memory                           []float64 // KiB
	syncs, durable                   []float64 // of a step of a run that is alone: how often it is made durable, and the µs of that alone
}

func (b *loopBench) format(ctx context.Context, f loopFormat, progress io.Writer, passes int) ([]Figure, error) {
	floor, err := b.floor(f)
	if err != nil {
		return nil, err
	}

	plain, err := b.whole(f, false)
	if err != nil {
		return nil, err
	}

	recorded, err := b.whole(f, true)
	if err != nil {
		return nil, err
	}

	own, record, bare, sent := &loopCosts{kind: plain}, &loopCosts{kind: recorded}, &loopCosts{kind: b.bare(f)}, &loopCosts{kind: floor}
	all := []*loopCosts{bare, own, record, sent}
	for _, c := range all { // open the connections
		if err := atOnce(ctx, b.sizes.many, c.kind, b.sizes.short, false); err != nil {
			return nil, err
		}
	}

	for pass := range passes {
		fmt.Fprintf(progress, "%s: pass %d of %d\n", f.name, pass+1, passes)
		for _, c := range all {
			for _, m := range []struct {
				into        *[]float64
				runs, steps int
			}{{&c.short, b.sizes.many, b.sizes.short}, {&c.long, b.sizes.many, b.sizes.long}, {&c.shortSingle, 1, b.sizes.short}, {&c.single, 1, b.sizes.long}} {
				spent, err := b.cpu(ctx, c.kind, m.runs, m.steps)
				if err != nil {
					return nil, err
				}
				*m.into = append(*m.into, spent)
			}

			// Its requests were built before, so its memory says nothing about a loop.
			if c == sent {
				continue
			}

			held, err := b.memory(ctx, c.kind)
			if err != nil {
				return nil, err
			}

			c.memory = append(c.memory, held)
		}

		syncs, spent, err := b.durable(ctx, recorded)
		if err != nil {
			return nil, err
		}
		record.syncs, record.durable = append(record.syncs, syncs), append(record.durable, spent)
	}

	return b.compare(f.name, own, record, bare, sent), nil
}

func (b *loopBench) compare(format string, own, record, bare, sent *loopCosts) []Figure {
	const unit = "µs CPU"
	name := func(what string, runs, steps int) string {
		return fmt.Sprintf("%s: %s, %d steps, %d at once", format, what, steps, runs)
	}
	s := b.sizes
	growth, bareGrowth := ratios(own.long, own.short), ratios(bare.long, bare.short)
	g := median(growth)

	return []Figure{
		against(name("step", s.many, s.long), unit, "bare", 1, own.long, bare.long),
		against(name("step", s.many, s.short), unit, "bare", 1.3, own.short, bare.short),
		{Name: fmt.Sprintf("%s: growth of a step, %d → %d steps", format, s.short, s.long), Value: g, Baseline: median(bareGrowth), Unit: "×", Goal: "≤ 1.6", Met: g <= 1.6},
		against(name("recorded step", s.many, s.long), unit, "bare", 1.5, record.long, bare.long),
		against(name("recorded step", s.many, s.short), unit, "bare", 1.5, record.short, bare.short),
		against(name("step", 1, s.long), unit, "bare", 1, own.single, bare.single),
		against(name("step", 1, s.short), unit, "bare", 1.3, own.shortSingle, bare.shortSingle),
		recordedAlone(name("recorded step", 1, s.long), unit, record, bare),
		against(fmt.Sprintf("%s: memory of a run, %d steps", format, s.long), "KiB", "bare", 1, own.memory, bare.memory),
		against(fmt.Sprintf("%s: memory of a recorded run, %d steps", format, s.long), "KiB", "bare", 1, record.memory, bare.memory),
		{Name: name("the same bytes, built before", s.many, s.long), Value: median(sent.long), Baseline: median(bare.long), Unit: unit, Ratio: median(ratios(sent.long, bare.long)), Met: true},
	}
}

// recordedAlone compares a run that shares its commits with nobody: beside 1.5 times the bare one it may take what it has
// made durable, for there is no record that is less.
func recordedAlone(name, unit string, record, bare *loopCosts) Figure {
	most := make([]float64, len(record.single))
	for i := range most {
		most[i] = 1.5*bare.single[i] + record.durable[i]
	}

	met := median(ratios(record.single, most)) <= 1
	goal := fmt.Sprintf("≤ 1.5× bare + %.0f for %.1f fsyncs", median(record.durable), median(record.syncs))
	return Figure{Name: name, Value: median(record.single), Baseline: median(bare.single), Unit: unit, Ratio: median(ratios(record.single, bare.single)), Goal: goal, Met: met}
}

// durable is how often a step of a run that is alone is made durable, and what that takes of the processor by
// itself: as many bytes, appended to a file and synced. More than two for a step are not granted: one before what is asked
// of the model, and one before what is done.
func (b *loopBench) durable(ctx context.Context, recorded kind) (syncs, spent float64, err error) {
	before, written := sqliteWrites.syncs.Load(), sqliteWrites.bytes.Load()
	if err := recorded(ctx, b.sizes.long, false); err != nil {
		return 0, 0, err
	}

	made := float64(sqliteWrites.syncs.Load() - before)
	if made == 0 {
		return 0, 0, errors.New("the record of a run was never synced")
	}

	_, each, err := b.append(int(float64(sqliteWrites.bytes.Load()-written) / made))
	syncs = min(made/float64(b.sizes.long+1), 2)
	return syncs, syncs * each, err
}

// reserve is what a turn of a model takes beside its step, for money is counted before it is
// spent: two durable commits.
func (b *loopBench) reserve(ctx context.Context, progress io.Writer, passes int) ([]Figure, error) {
	var out []Figure
	for _, runs := range []int{1, b.sizes.many} {
		var took, spent []float64
		for pass := range passes {
			fmt.Fprintf(progress, "reservations, %d at once: pass %d of %d\n", runs, pass+1, passes)
			attempts := make([]ledger.Attempt, runs)
			for i := range attempts {
				var err error
				if attempts[i], err = b.attempt(ctx); err != nil {
					return nil, err
				}
			}

			begin, cpu := time.Now(), cpuTime()
			var all sync.WaitGroup
			errs := make([]error, runs)
			for i, a := range attempts {
				all.Go(func() { errs[i] = b.pay(ctx, a, b.sizes.turns) })
			}

			all.Wait()
			if err := errors.Join(errs...); err != nil {
				return nil, err
			}

			n := float64(b.sizes.turns)
			took = append(took, milliseconds(time.Since(begin))/n)
			spent = append(spent, micros(cpuTime()-cpu)/n/float64(runs))
		}

		name := fmt.Sprintf("a turn reserved and settled, %d at once", runs)
		out = append(out, Figure{Name: name, Value: median(took), Unit: "ms", Met: true}, Figure{Name: name, Value: median(spent), Unit: "µs CPU", Met: true})
	}

	return out, nil
}

// pay reserves and settles turns of an attempt, one after the other.
func (b *loopBench) pay(ctx context.Context, a ledger.Attempt, turns int) error {
	// The same day for all turns: a measurement over midnight would move to empty sums.
	day := ledger.DayOf(time.Now(), time.UTC).Name
	for step := range turns {
		id, full, err := b.ledger.Reserve(ctx, a, ledger.Reservation{Step: step + 1, Day: day, Agent: "a", Job: "j", Usage: ledger.Usage{TokensIn: 1000, TokensOut: 100, CostMicroUSD: 10}})
		if err == nil && full != nil {
			err = fmt.Errorf("turn %d found no room", step+1)
		}
		if err != nil {
			return err
		}
		if _, err := b.ledger.Settle(ctx, id, ledger.Usage{TokensIn: 900, TokensOut: 50, CostMicroUSD: 5}, ""); err != nil {
			return err
		}
	}

	return nil
}

// disk is what the disk alone takes: six pages that are appended to a file beside the ledger,
// and made durable.
func (b *loopBench) disk(passes int) ([]Figure, error) {
	var took, spent []float64
	for range passes {
		t, s, err := b.append(6 * 4096)
		if err != nil {
			return nil, err
		}
		took, spent = append(took, t), append(spent, s)
	}

	const name = "24 KiB made durable, 1 at once"
	return []Figure{{Name: name, Value: median(took), Unit: "ms", Met: true}, {Name: name, Value: median(spent), Unit: "µs CPU", Met: true}}, nil
}

// append is what it takes to append so many bytes to a file beside the ledger and to make them durable: ms, and µs of the processor.
func (b *loopBench) append(size int) (took, spent float64, err error) {
	const commits = 200
	f, err := os.Create(filepath.Join(b.dir, "durable"))
	if err != nil {
		return 0, 0, err
	}
	defer f.Close()

	data := make([]byte, size)
	begin, cpu := time.Now(), cpuTime()
	for range commits {
		if _, err := f.Write(data); err != nil {
			return 0, 0, err
		}
		if err := f.Sync(); err != nil {
			return 0, 0, err
		}
	}

	return milliseconds(time.Since(begin)) / commits, micros(cpuTime()-cpu) / commits, nil
}
