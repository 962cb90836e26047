package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"rouse/agent/sandbox"
	"rouse/skills/module"
)

const (
	benchModuleStarts = 20
	benchModuleCalls  = 500

	// benchModule is a module as people write them, with one call of its host for each that it is asked for.
	benchModule = `
		import { total, type Row } from "./rows";
		interface Args { calls: number }
		export async function execute(args: Args, host: any): Promise<{ sum: number }> {
			const rows: Row[] = [];
			for (let i = 0; i < args.calls; i++) rows.push(await host.storage.get("row-" + i));
			return { sum: total(rows) };
		}`
	benchModuleRows = `
		export interface Row { day: string; amount: number }
		export const total = (rows: Row[]): number => rows.map((r) => r.amount).reduce((a, b) => a + b, 0);`
)

func benchModules(ctx context.Context, o Options) (_ []Figure, err error) {
	b, err := newModuleBench(ctx, benchModuleStarts)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.close()) }()

	for pass := range o.Passes + 1 {
		fmt.Fprintf(o.Progress, "modules, pass %d of %d\n", pass, o.Passes)
		if err := b.measure(ctx, pass > 0); err != nil { // the first fills the caches of the system
			return nil, err
		}
	}

	more, err := benchModuleRuns(ctx, o)
	return append(b.figures(), more...), err
}

// benchModuleRuns measures runs as a daemon has them.
func benchModuleRuns(ctx context.Context, o Options) (_ []Figure, err error) {
	b, err := newModuleRuns(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.close()) }()

	var calls, bare []float64
	for pass := range o.Passes + 1 {
		fmt.Fprintf(o.Progress, "runs of modules, pass %d of %d\n", pass, o.Passes)
		c, d, err := b.stored(ctx)
		if err != nil {
			return nil, err
		}
		if pass > 0 {
			calls, bare = append(calls, c), append(bare, d)
		}
	}

	fmt.Fprintf(o.Progress, "%d runs that wait\n", benchPaused)
	memory, processes, err := b.paused(ctx, benchPaused)
	return []Figure{
		against(thousands(benchStored)+" calls of host.storage in a run, on record", "ms", "as many writes into the bare database", 3, calls, bare),
		{Name: fmt.Sprintf("memory of a run that waits, of %d", benchPaused), Value: memory, Unit: "bytes", Goal: fmt.Sprintf("≤ %d", maxPaused), Met: memory <= maxPaused},
		{Name: "processes that they have", Value: float64(processes), Unit: "", Goal: "0", Met: processes == 0},
	}, err
}

// moduleBench measures modules on the strongest tier of this machine, and on none.
type moduleBench struct {
	starts         int
	dir            string
	boxes          []*sandbox.Sandbox
	tier           sandbox.Tier
	confined, free *module.Machine

	confinedStart, freeStart, fresh, cached, call []float64 // ms, but for call: µs
}

func newModuleBench(ctx context.Context, starts int) (_ *moduleBench, err error) {
	b := &moduleBench{starts: starts}
	if b.dir, err = os.MkdirTemp("", "rouse-bench-modules-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.close())
		}
	}()

	for name, text := range map[string]string{module.EntryFile: benchModule, "rows.ts": benchModuleRows} {
		if err := os.WriteFile(filepath.Join(b.dir, name), []byte(text), 0o600); err != nil {
			return nil, err
		}
	}

	for _, o := range []sandbox.Options{{}, {OffReason: "the baseline of a measurement"}} {
		s, err := sandbox.New(o)
		if err != nil {
			return nil, err
		}
		b.boxes = append(b.boxes, s)
	}

	b.tier, _ = b.boxes[0].Tier(ctx)
	if b.confined, err = module.New(module.Options{Sandbox: b.boxes[0], MinTier: sandbox.TierC}); err != nil {
		return nil, err
	}
	b.free, err = module.New(module.Options{Sandbox: b.boxes[1]})
	return b, err
}

func (b *moduleBench) close() error {
	err := os.RemoveAll(b.dir)
	for _, s := range b.boxes {
		err = errors.Join(err, s.Close())
	}
	return err
}

// measure is one pass, which alternates between both machines.
func (b *moduleBench) measure(ctx context.Context, count bool) error {
	var p *module.Program
	fresh, err := timed(func() (err error) { p, err = module.Compile(ctx, b.dir); return err })
	if err != nil {
		return err
	}

	if _, err := b.confined.Compile(ctx, b.dir); err != nil {
		return err
	}
	cached, err := timed(func() error { _, err := b.confined.Compile(ctx, b.dir); return err })
	if err != nil {
		return err
	}

	var confined, free []float64
	for range b.starts {
		c, err := timed(func() error { return runModule(ctx, b.confined, p, 0) })
		if err != nil {
			return err
		}
		f, err := timed(func() error { return runModule(ctx, b.free, p, 0) })
		if err != nil {
			return err
		}
		confined, free = append(confined, c), append(free, f)
	}

	calls, err := timed(func() error { return runModule(ctx, b.confined, p, benchModuleCalls) })
	if err != nil || !count {
		return err
	}

	b.fresh, b.cached = append(b.fresh, fresh), append(b.cached, cached)
	b.confinedStart, b.freeStart = append(b.confinedStart, median(confined)), append(b.freeStart, median(free))
	b.call = append(b.call, (calls-median(confined))*1000/benchModuleCalls)
	return nil
}

// runModule runs it from its start to its end, and checks what it returned.
func runModule(ctx context.Context, m *module.Machine, p *module.Program, calls int) (err error) {
	args, err := json.Marshal(map[string]int{"calls": calls})
	if err != nil {
		return err
	}

	i, err := m.Start(ctx, p, module.Start{Export: "execute", Args: args, Now: time.Now(), Surface: module.Surface{Methods: []string{"storage.get"}}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, i.Close()) }()

	e, err := i.Next(ctx, nil)
	for err == nil && e.End == nil {
		e, err = i.Next(ctx, []module.Answer{{ID: e.Calls[0].ID, Value: json.RawMessage(`{"day":"2026-11-23","amount":2}`), Now: time.Now()}})
	}
	if err != nil {
		return err
	}

	if want := fmt.Sprintf(`{"sum":%d}`, 2*calls); string(e.End.Value) != want {
		return fmt.Errorf("the module %s, and returned %s instead of %s", e.End, e.End.Value, want)
	}
	return nil
}

func (b *moduleBench) figures() []Figure {
	return []Figure{
		against("a run without calls, tier "+string(b.tier), "ms", "the same without confinement", 2, b.confinedStart, b.freeStart),
		{Name: "a call of the host", Value: median(b.call), Unit: "µs", Met: true},
		{Name: "compiling, 2 files", Value: median(b.fresh), Unit: "ms", Met: true},
		{Name: "finding it compiled", Value: median(b.cached), Unit: "ms", Met: true},
	}
}
