package bench

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"rouse/agentdb/ledger"
	"rouse/internal/domain"
	"rouse/scheduler/dispatch"
)

const (
	benchWrites = 500
	benchNoops  = 20_000
)

func benchQueue(ctx context.Context, o Options) ([]Figure, error) {
	dir, err := os.MkdirTemp("", "rouse-bench")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)

	var sync1, single, group, bare, events, latency, noops []float64
	for pass := range o.Passes {
		fmt.Fprintf(o.Progress, "pass %d of %d\n", pass+1, o.Passes)
		f, err := benchFsync(filepath.Join(dir, fmt.Sprint("fsync", pass)))
		if err != nil {
			return nil, err
		}

		l, err := ledger.Open(ctx, ledger.Options{Path: filepath.Join(dir, fmt.Sprint("ledger", pass, ".db"))})
		if err != nil {
			return nil, err
		}

		one, err := benchEnqueue(ctx, l, 1)
		if err != nil {
			return nil, err
		}

		many, err := benchEnqueue(ctx, l, 16)
		if err != nil {
			return nil, err
		}

		b, err := benchBare(ctx, filepath.Join(dir, fmt.Sprint("bare", pass, ".db")))
		if err != nil {
			return nil, err
		}

		e, err := benchEvents(ctx, l)
		if err != nil {
			return nil, err
		}
		if err := l.Close(); err != nil {
			return nil, err
		}

		wait, rate, err := benchRuns(ctx, filepath.Join(dir, fmt.Sprint("runs", pass, ".db")))
		if err != nil {
			return nil, err
		}

		sync1, single, group = append(sync1, f), append(single, one), append(group, many)
		bare, events, latency, noops = append(bare, b), append(events, e), append(latency, wait), append(noops, rate)
	}

	toSync, toSingle, toBare := median(ratios(single, sync1)), median(ratios(group, single)), median(ratios(events, bare))
	return []Figure{
		{"durable enqueue, one caller", median(single), median(sync1), "1/s, of 1/fsync p50", toSync, "≥ 0.45", toSync >= 0.45},
		{"durable enqueue, 16 callers", median(group), median(single), "1/s, of one caller", toSingle, "≥ 3", toSingle >= 3},
		{"ledger events, 16 callers", median(events), median(bare), "1/s, of bare SQLite", toBare, "≥ 0.8", toBare >= 0.8},
		{"enqueue → start, p50", median(latency), 0, "ms", 0, "≤ 2 ms", median(latency) <= 2},
		{"no-op runs, end to end", median(noops), 0, "1/s", 0, "≥ 5000/s", median(noops) >= 5000},
	}, nil
}

// benchFsync is what one durable 4 KiB write costs: 1/p50.
func benchFsync(path string) (float64, error) {
	f, err := os.Create(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()

	page := make([]byte, 4096)
	var took []float64
	for range benchWrites {
		begin := time.Now()
		if _, err := f.Write(page); err != nil {
			return 0, err
		}
		if err := f.Sync(); err != nil {
			return 0, err
		}
		took = append(took, time.Since(begin).Seconds())
	}

	return 1 / median(took), nil
}

// rate runs an operation from so many callers and counts how many a second are done.
func rate(callers, each int, op func() error) (float64, error) {
	errs := make([]error, callers)
	var all sync.WaitGroup
	begin := time.Now()

	for i := range callers {
		all.Go(func() {
			for range each {
				if errs[i] = op(); errs[i] != nil {
					return
				}
			}
		})
	}

	all.Wait()
	took := time.Since(begin).Seconds()

	for _, err := range errs {
		if err != nil {
			return 0, err
		}
	}

	return float64(callers*each) / took, nil
}

func benchEnqueue(ctx context.Context, l *ledger.Ledger, callers int) (float64, error) {
	return rate(callers, benchWrites, func() error {
		_, err := l.Enqueue(ctx, ledger.Request{Job: "j", Agent: "a", Trigger: domain.TriggerAPI})
		return err
	})
}

func benchEvents(ctx context.Context, l *ledger.Ledger) (float64, error) {
	return rate(16, benchWrites, func() error {
		return l.AppendEvents(ctx, ledger.Event{Job: "j", Kind: "bench", Data: []byte(`{"n":1}`)})
	})
}

// benchBare writes the same event rows with nothing but the driver: sixteen rows a
// transaction, which is what sixteen callers can share at best.
func benchBare(ctx context.Context, path string) (float64, error) {
	db, err := sql.Open("sqlite", path+"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)")
	if err != nil {
		return 0, err
	}
	defer db.Close()

	// A second connection would only wait for the lock of the first.
	db.SetMaxOpenConns(1)
	if _, err := db.ExecContext(ctx, `create table events (id integer primary key autoincrement, run integer not null default 0, seq integer not null default 0,
		job text not null default '', at integer not null, kind text not null, data text not null default '');
		create unique index by_run on events (run, seq) where run <> 0; create index by_job on events (job, id);`); err != nil {
		return 0, err
	}

	insert, err := db.PrepareContext(ctx, `insert into events (job, at, kind, data) values (?, ?, ?, ?)`)
	if err != nil {
		return 0, err
	}
	defer insert.Close()

	begin := time.Now()
	for range benchWrites {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return 0, err
		}

		for range 16 {
			if _, err := tx.StmtContext(ctx, insert).ExecContext(ctx, "j", time.Now().UnixMilli(), "bench", `{"n":1}`); err != nil {
				return 0, err
			}
		}

		if err := tx.Commit(); err != nil {
			return 0, err
		}
	}

	return 16 * benchWrites / time.Since(begin).Seconds(), nil
}

// unlimited is an executor's part without settings, but for jobs whose runs may all be on at once.
type unlimited struct{ dispatch.ExecutorFunc }

// Policy implements dispatch.Executor.
func (unlimited) Policy(string) dispatch.Policy { return dispatch.Policy{Concurrency: -1} }

// noop is an executor that only reports that it was called.
type noop struct {
	unlimited
	started chan int64
}

func (n noop) Execute(_ context.Context, r ledger.Run, _ ledger.Attempt) (ledger.Result, error) {
	n.started <- r.ID
	return ledger.Result{Outcome: domain.OutcomeSuccess, Exit: domain.ExitFinalResponse}, nil
}

// benchRuns measures how long an accepted run waits for its start (ms, p50), and how many
// runs that do nothing are accepted, started and finished a second.
func benchRuns(ctx context.Context, path string) (wait, perSecond float64, err error) {
	l, err := ledger.Open(ctx, ledger.Options{Path: path})
	if err != nil {
		return 0, 0, err
	}
	defer l.Close()

	started := make(chan int64, benchNoops)
	d, err := dispatch.New(dispatch.Options{Ledger: l, Executor: noop{started: started}, Runs: 64, RunsPerAgent: 64})
	if err != nil {
		return 0, 0, err
	}

	ctx, stop := context.WithCancel(ctx)
	over := make(chan error, 1)
	go func() { over <- d.Run(ctx) }()
	var waits []float64
	for range 200 {
		begin := time.Now()
		if _, err := l.Enqueue(ctx, ledger.Request{Job: "j", Agent: "a", Trigger: domain.TriggerAPI}); err != nil {
			stop()
			return 0, 0, err
		}
		<-started
		waits = append(waits, time.Since(begin).Seconds()*1000)
	}

	begin := time.Now()
	batch := make([]ledger.Request, 500)
	for i := range batch {
		batch[i] = ledger.Request{Job: "j", Agent: "a", Trigger: domain.TriggerAPI}
	}

	for range benchNoops / len(batch) {
		// One commit for many: a commit each is what benchEnqueue measures.
		if _, err := l.Enqueue(ctx, batch...); err != nil {
			stop()
			return 0, 0, err
		}
	}

	for range benchNoops {
		<-started
	}

	stop()
	err = <-over // the last results are written when it returns
	return median(waits), benchNoops / time.Since(begin).Seconds(), err
}
