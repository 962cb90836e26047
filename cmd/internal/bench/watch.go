package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"rouse/agentdb/ledger"
	"rouse/internal/domain"
	"rouse/scheduler/dispatch"
	"rouse/watcher"
)

// fastSettle is the settle window of responsiveness: fast.
const fastSettle = 200 * time.Millisecond

// watchSizes bound the measurement.
type watchSizes struct {
	drops, fill int // files that come one at a time, after so many other runs
	folders     int
	burst       int
	scan, lost  int // files of a folder, and how many of them come while nobody reads events
	files       int // each read by a run of a daemon
}

func benchWatch(ctx context.Context, o Options) ([]Figure, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}

	base, err := os.MkdirTemp("", "rouse-bench")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(base)

	b := &watchBench{self: self, base: base, passes: o.Passes, progress: o.Progress,
		sizes: watchSizes{drops: 60, fill: 400, folders: 10_000, burst: 50_000, scan: 100_000, lost: 20_000, files: o.Files}}
	return b.measure(ctx, b.drops, b.registration, b.burst, b.overflow, b.daemon)
}

// watchBench is one run of the measurement, in a folder of its own.
type watchBench struct {
	self     string // this program
	base     string
	passes   int
	sizes    watchSizes
	progress io.Writer
}

func (b *watchBench) measure(ctx context.Context, parts ...func(context.Context) ([]Figure, error)) (out []Figure, err error) {
	// Paths are compared with those in the ledger, and a temporary folder can be a link.
	if b.base, err = filepath.EvalSymlinks(b.base); err != nil {
		return nil, err
	}

	for _, part := range parts {
		figures, err := part(ctx)
		if err != nil {
			return nil, err
		}
		out = append(out, figures...)
	}

	return out, nil
}

func (b *watchBench) report(format string, args ...any) {
	fmt.Fprintf(b.progress, format+"\n", args...)
}

// watching is a watcher at work, with a ledger on disk and a dispatcher whose runs do nothing.
type watching struct {
	ledger  *ledger.Ledger
	watcher *watcher.Watcher
	ready   time.Duration // from the order to watch to the last folder armed
	halt    func() error
}

// startWatching starts to watch a folder; started, if there is one, is called for each run that starts.
func startWatching(ctx context.Context, path string, o watcher.Options, w watcher.Watch, started func(ledger.Run)) (_ *watching, err error) {
	l, err := ledger.Open(ctx, ledger.Options{Path: path})
	if err != nil {
		return nil, err
	}

	defer func() {
		if err != nil {
			err = errors.Join(err, l.Close())
		}
	}()

	o.Ledger = l
	var d *dispatch.Dispatcher
	if started != nil {
		if d, err = dispatch.New(dispatch.Options{Ledger: l, Executor: starts{started: started}, Runs: 64, RunsPerAgent: 64}); err != nil {
			return nil, err
		}
		o.Queue = d
	}

	begin := time.Now()
	eyes, err := watcher.New(o)
	if err != nil {
		return nil, err
	}
	if err := eyes.Set(ctx, []watcher.Watch{w}); err != nil {
		return nil, err
	}

	parts := []func(context.Context) error{eyes.Run}
	if d != nil {
		parts = append(parts, d.Run)
	}

	own, cancel := context.WithCancel(ctx)
	over := make(chan error, len(parts))
	for _, part := range parts {
		go func() { over <- part(own) }()
	}

	select {
	case <-eyes.Ready():
	// Without this case a part that failed would leave the measurement waiting forever.
	case err := <-over:
		cancel()
		return nil, errors.Join(errors.New("what watches ended before it was ready"), err)
	}

	return &watching{ledger: l, watcher: eyes, ready: time.Since(begin), halt: func() error {
		cancel()
		var err error
		for range parts {
			err = errors.Join(err, <-over)
		}
		return errors.Join(err, l.Close())
	}}, nil
}

// starts is an executor that only reports that it was called.
type starts struct {
	unlimited
	started func(ledger.Run)
}

func (s starts) Execute(_ context.Context, r ledger.Run, _ ledger.Attempt) (ledger.Result, error) {
	s.started(r)
	return ledger.Result{Outcome: domain.OutcomeSuccess, Exit: domain.ExitFinalResponse}, nil
}

// percentile of measured values, whose order is not kept.
func percentile(values []float64, p int) float64 {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	return values[min(len(values)*p/100, len(values)-1)]
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// grouped writes a number with a comma before each three digits.
func grouped(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%s,%03d", grouped(n/1000), n%1000)
}
