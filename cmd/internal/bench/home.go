package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"rouse/agentdb/dbfile"
	"rouse/agentdb/ledger"
	"rouse/cmd/internal/api"
	"rouse/cmd/internal/daemon"
)

// Bounds of the goals, in milliseconds.
const (
	maxReadyWarm = 200
	maxReadyCold = 500
	maxAnswer    = 5
)

// pruneAtMost is of how many runs a home may be for its runs to be removed: more take minutes.
const pruneAtMost = 100_000

// homeBench opens a home that holds many runs, asks it, and removes its runs.
type homeBench struct {
	filledHome
	passes int
	asks   int // how often each question is asked

	out []Figure
}

func benchHome(ctx context.Context, o Options) (out []Figure, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}

	dir := o.Home
	if dir == "" {
		if dir, err = os.MkdirTemp("", "rouse-bench-home-"); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	}

	for _, runs := range o.Sizes {
		if runs < 1 {
			return nil, fmt.Errorf("--runs: a home with %d runs cannot be filled; say 1 or more", runs)
		}
		filled := filledHome{self: self, dir: filepath.Join(dir, strconv.Itoa(runs)), runs: runs, progress: o.Progress}
		b := &homeBench{filledHome: filled, passes: o.Passes, asks: 200 * o.Passes}
		figures, err := b.measure(ctx)
		if err != nil {
			return nil, err
		}
		out = append(out, figures...)
	}
	return out, nil
}

func (b *homeBench) measure(ctx context.Context) ([]Figure, error) {
	if err := b.fill(ctx); err != nil {
		return nil, err
	}
	for _, part := range []func(context.Context) error{b.backedUp, b.opened, b.started, b.answers, b.reads, b.pruned} {
		if err := part(ctx); err != nil {
			return nil, err
		}
	}
	return b.out, nil
}

// backedUp makes the daily backup: a daemon would make it as soon as it has started, beside all that is measured.
func (b *homeBench) backedUp(ctx context.Context) error {
	l, err := ledger.Open(ctx, daemon.LedgerOptions(b.home()))
	if err != nil {
		return err
	}
	_, err = l.BackUpDaily(ctx)
	return errors.Join(err, l.Close())
}

// add notes a figure in milliseconds of this home; without a bound it has no goal.
func (b *homeBench) add(name string, value, atMost float64) {
	b.addBeside(name, []float64{value}, nil, atMost)
}

// addBeside notes a figure that has a baseline, in passes that alternated with it.
func (b *homeBench) addBeside(name string, values, baselines []float64, atMost float64) {
	f := Figure{Name: fmt.Sprintf("%s runs: %s", grouped(b.runs), name), Unit: "ms"}
	if baselines != nil {
		f.Ratio = median(ratios(values, baselines))
		f.Baseline = median(baselines)
	}
	if f.Value = median(values); atMost > 0 {
		f.Goal, f.Met = fmt.Sprintf("≤ %g ms", atMost), f.Value <= atMost
	}
	b.out = append(b.out, f)
}

// timing does something once, and says how long that took.
type timing func() (time.Duration, error)

// warmAndCold measures with the ledger in the system's memory, and without, in turns with a baseline unless that is nil. Cold is left out
// where the system cannot forget a file.
func (b *homeBench) warmAndCold(name string, warm, cold float64, measure, baseline timing) error {
	for _, at := range []struct {
		name   string
		atMost float64
		before func(path string) error
	}{{"warm", warm, remember}, {"cold", cold, forget}} {
		var took, beside []float64
		for range b.passes {
			err := at.before(b.ledger())
			if errors.Is(err, errors.ErrUnsupported) {
				b.report("%s, %s: not measured, for this system does not forget a file when it is asked to", name, at.name)
				return nil
			}
			if err != nil {
				return err
			}

			one, err := measure()
			if err != nil {
				return err
			}
			took = append(took, milliseconds(one))
			if baseline == nil {
				continue
			}
			if one, err = baseline(); err != nil {
				return err
			}
			beside = append(beside, milliseconds(one))
		}
		b.addBeside(name+", "+at.name, took, beside, at.atMost)
	}
	return nil
}

// remember reads a file, so that the system has as much of it in memory as there is room for.
func remember(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, f)
	return errors.Join(err, f.Close())
}

// opened is how long the ledger takes to be opened, and a command that reads it without a daemon.
func (b *homeBench) opened(ctx context.Context) error {
	b.report("%s runs: opening", grouped(b.runs))
	if err := b.warmAndCold("open", 0, 0, func() (time.Duration, error) {
		begin := time.Now()
		l, err := ledger.Open(ctx, daemon.LedgerOptions(b.home()))
		took := time.Since(begin)
		if err != nil {
			return 0, err
		}
		return took, l.Close()
	}, nil); err != nil {
		return err
	}

	// A command with nothing to read takes most of this to start.
	empty := b.emptyHome("runs")
	if err := errors.Join(empty.configure(), b.list(ctx, empty)); err != nil { // makes its home
		return err
	}
	command := func(of *filledHome) timing {
		return func() (time.Duration, error) {
			begin := time.Now()
			err := b.list(ctx, of)
			return time.Since(begin), err
		}
	}
	return b.warmAndCold("rouse runs without a daemon", 0, 0, command(&b.filledHome), command(empty))
}

// list has a command list runs where no daemon is.
func (b *homeBench) list(ctx context.Context, of *filledHome) error {
	if out, err := exec.CommandContext(ctx, b.self, "runs", "-n", "20", "--config", of.config()).CombinedOutput(); err != nil {
		return fmt.Errorf("rouse runs: %w: %s", err, out)
	}
	return nil
}

// emptyHome is the baseline: a home of the same configuration, without runs.
func (b *homeBench) emptyHome(name string) *filledHome {
	return &filledHome{self: b.self, dir: filepath.Join(b.dir, "empty-"+name), progress: b.progress}
}

// started is how long a daemon takes to be ready beside one without runs: after one that was stopped, and after one that was killed, while it
// still compared its file with the checksum of it, and later.
func (b *homeBench) started(ctx context.Context) error {
	empty := b.emptyHome("daemon")
	if err := empty.configure(); err != nil {
		return err
	}

	ready := func(of *filledHome, end func(*exec.Cmd) error) timing {
		return func() (time.Duration, error) {
			begin := time.Now()
			process, err := of.start(ctx)
			if err != nil {
				return 0, err
			}
			took := time.Since(begin)
			return took, end(process)
		}
	}

	var stops []float64
	stop := func(process *exec.Cmd) error {
		begin := time.Now()
		err := errors.Join(process.Process.Signal(os.Interrupt), process.Wait())
		stops = append(stops, milliseconds(time.Since(begin)))
		return err
	}
	quietly := func(process *exec.Cmd) error {
		return errors.Join(process.Process.Signal(os.Interrupt), process.Wait())
	}
	kill := func(process *exec.Cmd) error {
		err := process.Process.Kill()
		_ = process.Wait() // it was killed
		return err
	}
	killLater := func(process *exec.Cmd) error { return errors.Join(b.awaitCompared(ctx), kill(process)) }

	b.report("%s runs: daemons that start and stop", grouped(b.runs))
	if err := b.warmAndCold("ready", maxReadyWarm, maxReadyCold, ready(&b.filledHome, stop), ready(empty, quietly)); err != nil {
		return err
	}
	// It compares the file with its checksum before it ends, and makes a new one.
	b.addBeside("a daemon that has just begun is stopped", stops, nil, 0)

	b.report("%s runs: daemons that are killed", grouped(b.runs))
	// Each begins with such a kill, or its first start would come after a stop.
	for _, k := range []struct {
		name       string
		end        func(*exec.Cmd) error
		warm, cold float64
	}{{"ready after a kill", killLater, maxReadyWarm, maxReadyCold}, {"ready after a kill while it was compared", kill, 0, 0}} {
		if _, err := ready(&b.filledHome, k.end)(); err != nil {
			return err
		}
		if err := b.warmAndCold(k.name, k.warm, k.cold, ready(&b.filledHome, k.end), nil); err != nil {
			return err
		}
	}

	// The next daemon would check the whole file beside what is measured.
	b.report("%s runs: checking the file, as after a kill", grouped(b.runs))
	began := time.Now()
	l, err := b.openChecked(ctx)
	if err != nil {
		return err
	}
	b.add("the file is checked as a whole in the background", milliseconds(time.Since(began)), 0)
	return l.Close()
}

// openChecked opens the ledger, and returns once its file was checked.
func (b *homeBench) openChecked(ctx context.Context) (*ledger.Ledger, error) {
	l, err := ledger.Open(ctx, daemon.LedgerOptions(b.home()))
	if err != nil {
		return nil, err
	}
	for {
		file, err := l.FileState(ctx)
		if err == nil && file.ReadOnly != "" {
			err = errors.New(file.ReadOnly)
		}
		if err != nil {
			return nil, errors.Join(err, l.Close())
		}
		if file.Checked {
			return l, nil
		}

		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return nil, errors.Join(context.Cause(ctx), l.Close())
		}
	}
}

// awaitCompared waits until what a daemon writes gets into the file, which it does not while that is compared with its checksum.
func (b *homeBench) awaitCompared(ctx context.Context) error {
	for {
		m, err := dbfile.ReadMarker(b.ledger())
		if err != nil || m.State == dbfile.StateOpen && m.Size == 0 {
			return err
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// answers is how long a daemon takes until its answer is there, by its socket; what a command makes of it is not part of it.
func (b *homeBench) answers(ctx context.Context) (err error) {
	process, err := b.start(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, process.Process.Signal(os.Interrupt), process.Wait()) }()
	if err := b.awaitCompared(ctx); err != nil {
		return err
	}
	client, err := api.Dial(ctx, daemon.SocketPath(b.home()))
	if err != nil {
		return err
	}
	defer client.Close()

	for _, q := range []struct {
		path, query string
		goal        float64 // of 99 of 100, in milliseconds; 0 for none
	}{
		{"/v1/jobs", "", maxAnswer}, {"/v1/runs", "n=50", maxAnswer}, {"/v1/runs", "n=50&job=" + busyJob, maxAnswer},
		{"/v1/runs", "n=50&job=" + longAgoJob, maxAnswer}, {"/v1/runs", "n=50&job=" + neverJob, maxAnswer}, {"/v1/budget", "", maxAnswer},
		// Twenty is what rouse why asks for; fifty shows how it grows.
		{"/v1/why", "n=20&job=" + busyJob, maxAnswer}, {"/v1/why", "n=20&job=" + longAgoJob, maxAnswer}, {"/v1/why", "n=20&job=" + neverJob, maxAnswer},
		{"/v1/why", "n=50&job=" + busyJob, 0}, {"/v1/why", "n=50&job=" + longAgoJob, 0},
	} {
		query, err := url.ParseQuery(q.query)
		if err != nil {
			return err
		}
		what := "GET " + q.path
		if q.query != "" {
			what += "?" + q.query
		}
		if err := b.ask(what, q.goal, func() error { var all json.RawMessage; return client.Get(ctx, q.path, query, &all) }); err != nil {
			return err
		}
	}
	return nil
}

// ask repeats a question, and notes its median and what 99 of 100 take at most, in milliseconds; the goal is of these, and 0 for none.
func (b *homeBench) ask(what string, goal float64, question func() error) error {
	b.report("%s runs: %s", grouped(b.runs), what)
	var took []float64
	for i := range b.asks + 1 {
		begin := time.Now()
		if err := question(); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		if i > 0 { // the first warms what is to be warm
			took = append(took, milliseconds(time.Since(begin)))
		}
	}

	b.add(what+", median", median(took), 0)
	b.add(what+", p99", percentile(took, 99), goal)
	return nil
}

// reads is what the ledger itself takes for what a start and a pass of maintenance ask it.
func (b *homeBench) reads(ctx context.Context) (err error) {
	l, err := b.openChecked(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()

	if err := b.ask("the last run of every job", maxAnswer, func() error { _, err := l.LastRuns(ctx); return err }); err != nil {
		return err
	}
	return b.ask("a prune that finds nothing", maxAnswer, func() error {
		n, err := l.Prune(ctx, time.Now(), func(string) time.Duration { return 2 * homeSpan })
		if err == nil && n > 0 {
			err = fmt.Errorf("%d runs were removed, which are all to be kept", n)
		}
		return err
	})
}

// pruned removes the older half of the runs of a copy, and then the rest.
func (b *homeBench) pruned(ctx context.Context) (err error) {
	if b.runs > pruneAtMost {
		b.report("%s runs: not removed, which takes minutes", grouped(b.runs))
		return nil
	}

	b.report("%s runs: removing them in a copy", grouped(b.runs))
	dir := filepath.Join(b.dir, "pruned")
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o700)); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()

	whole, err := ledger.Open(ctx, daemon.LedgerOptions(b.home()))
	if err != nil {
		return err
	}
	o := daemon.LedgerOptions(dir)
	if _, err := whole.Backup(ctx, ledger.BackupSpec{File: o.Path}); err != nil {
		return errors.Join(err, whole.Close())
	}
	if err := whole.Close(); err != nil {
		return err
	}

	l, err := ledger.Open(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	before := float64(dbfile.Size(o.Path))

	for _, part := range []struct {
		name   string
		keep   time.Duration
		atMost float64 // of what the file was
	}{{"half of them", homeSpan / 2, 0.65}, {"all of them", 0, 0.1}} {
		begin := time.Now()
		n, err := l.Prune(ctx, time.Now().Add(time.Hour), func(string) time.Duration { return part.keep })
		if err != nil {
			return err
		}
		each := milliseconds(time.Since(begin)) / float64(max(n, 1))
		if _, err := l.GiveSpaceBack(ctx); err != nil {
			return err
		}

		after := float64(dbfile.Size(o.Path))
		b.add("a run is removed, of "+part.name, each, 0)
		ratio := after / before
		b.out = append(b.out, Figure{fmt.Sprintf("%s runs: the ledger without %s", grouped(b.runs), part.name), after / 1e6, before / 1e6, "MB", ratio,
			fmt.Sprintf("≤ %g× what it was", part.atMost), ratio <= part.atMost})
	}
	return nil
}
