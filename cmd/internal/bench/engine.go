package bench

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"slices"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver

	"rouse/agentdb/ledger"
	"rouse/internal/domain"
	"rouse/internal/text"
)

// drainFor is how long the runs of one figure may take.
const drainFor = 5 * time.Minute

// engineBench measures processes that share a ledger in PostgreSQL.
type engineBench struct {
	self, url string
	runs      int   // that are drained for one figure
	processes []int // how many drain them
	starts    int   // how often a start is waited for
	cancels   int
	writes    int // into a home that is copied
	progress  io.Writer
}

func benchEngine(ctx context.Context, o Options) ([]Figure, error) {
	if o.Postgres == "" {
		return nil, errors.New("say --postgres URL of a database in which schemas may be made, and are removed again")
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	b := engineBench{self: self, url: o.Postgres, runs: o.Queued, processes: []int{1, 2, 4}, starts: 100, cancels: 5, writes: 2000, progress: o.Progress}
	return b.measure(ctx, o.Passes)
}

func (b *engineBench) measure(ctx context.Context, passes int) ([]Figure, error) {
	seen := map[string][]float64{}
	note := func(name string, value float64) { seen[name] = append(seen[name], value) }
	for pass := range passes {
		for _, n := range b.processes {
			fmt.Fprintf(b.progress, "pass %d of %d: %s, %s\n", pass+1, passes, text.Plural(b.runs, "run"), processes(n))
			nodes, err := b.drainNodes(ctx, n)
			if err != nil {
				return nil, err
			}
			bare, err := b.drainBare(ctx, n)
			if err != nil {
				return nil, err
			}
			note(fmt.Sprint("nodes", n), nodes)
			note(fmt.Sprint("bare", n), bare)
		}
		fmt.Fprintf(b.progress, "pass %d of %d: starts, cancellations, and a rescue\n", pass+1, passes)
		if err := b.latencies(ctx, note); err != nil {
			return nil, err
		}
		fmt.Fprintf(b.progress, "pass %d of %d: writes that are copied\n", pass+1, passes)
		if err := b.shipping(ctx, note); err != nil {
			return nil, err
		}
	}

	var out []Figure
	for _, n := range b.processes {
		nodes, bare := seen[fmt.Sprint("nodes", n)], seen[fmt.Sprint("bare", n)]
		ratio := median(ratios(nodes, bare))
		out = append(out, Figure{"drained, " + processes(n), median(nodes), median(bare), "1/s, of a bare queue", ratio, "", true})
	}
	cancel, rescue := median(seen["cancel"]), median(seen["rescue"])
	shipped := median(ratios(seen["shipped"], seen["alone"]))
	return append(out,
		Figure{"enqueue → start, p50", median(seen["start50"]), 0, "ms", 0, "", true},
		Figure{"enqueue → start, p99", median(seen["start99"]), 0, "ms", 0, "", true},
		Figure{"cancel of another process's run", cancel, 0, "ms", 0, "≤ 500 ms", cancel <= 500},
		Figure{"rescue after kill -9", rescue, 0, "ms", 0, "≤ 3000 ms", rescue <= 3000},
		Figure{"a write that replicate copies", median(seen["shipped"]), median(seen["alone"]), "ms, of one that nobody copies", shipped, "", true}), nil
}

// inSchema gives a schema of its own to a measurement, and removes it.
func (b *engineBench) inSchema(ctx context.Context, use func(url string, db *sql.DB) error) (err error) {
	admin, err := sql.Open("pgx", b.url)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, admin.Close()) }()
	schema := fmt.Sprintf("rouse_bench_%d_%d", os.Getpid(), time.Now().UnixNano())
	if _, err := admin.ExecContext(ctx, "create schema "+schema); err != nil {
		return fmt.Errorf("no schema can be made in the database: %w", err)
	}
	defer func() {
		_, e := admin.ExecContext(context.WithoutCancel(ctx), "drop schema "+schema+" cascade")
		err = errors.Join(err, e)
	}()

	at, err := url.Parse(b.url)
	if err != nil {
		return errors.New("--postgres is no URL") // the error has its password
	}
	q := at.Query()
	q.Set("search_path", schema)
	at.RawQuery = q.Encode()
	db, err := sql.Open("pgx", at.String())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return use(at.String(), db)
}

// drainNodes is how many runs a second are started and finished by so many nodes, of those that were queued before.
func (b *engineBench) drainNodes(ctx context.Context, processes int) (rate float64, err error) {
	err = b.inSchema(ctx, func(url string, db *sql.DB) error {
		l, err := ledger.Open(ctx, ledger.Options{DB: db})
		if err != nil {
			return err
		}
		defer l.Close()
		batch := slices.Repeat([]ledger.Request{{Job: "j", Trigger: domain.TriggerAPI}}, 500)
		for left := b.runs; left > 0; left -= len(batch) {
			if _, err := l.Enqueue(ctx, batch[:min(left, len(batch))]...); err != nil {
				return err
			}
		}
		rate, err = b.drain(ctx, "engine-node", url, db, processes, `select count(*) from runs where state = 'finished'`)
		return err
	})
	return rate, err
}

// drain counts from when a tenth is done, so that the start of the processes does not count, to when all but a tenth is.
func (b *engineBench) drain(ctx context.Context, kind, url string, db *sql.DB, processes int, query string) (rate float64, err error) {
	if _, err := db.ExecContext(ctx, "analyze"); err != nil { // both begin with the same knowledge of their tables
		return 0, err
	}
	for range processes {
		w, err := b.startWorker(ctx, kind, url)
		if err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, w.end()) }()
	}

	var from, to time.Time
	var first, last, n int
	for begun := time.Now(); n < b.runs; {
		if err := db.QueryRowContext(ctx, query).Scan(&n); err != nil {
			return 0, err
		}
		now := time.Now()
		if n >= b.runs/10 && from.IsZero() {
			from, first = now, n
		}
		if n <= b.runs*9/10 || to.IsZero() {
			to, last = now, n
		}
		if now.Sub(begun) > drainFor {
			return 0, fmt.Errorf("%s: %d of %d runs were done in %s", kind, n, b.runs, drainFor)
		}
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(20 * time.Millisecond): // a poll that costs the measured nothing
		}
	}
	if last <= first {
		return 0, fmt.Errorf("%s: too fast to be measured with %d runs; say more --runs", kind, b.runs)
	}
	return float64(last-first) / to.Sub(from).Seconds(), nil
}

// asker is who asks for runs beside two nodes, and hears of what they write.
type asker struct {
	ctx context.Context
	l   *ledger.Ledger
}

func (a asker) enqueue(job string) (int64, error) {
	accepted, err := a.l.Enqueue(a.ctx, ledger.Request{Job: job, Trigger: domain.TriggerAPI})
	if err != nil {
		return 0, err
	}
	return accepted[0].Run, nil
}

// until waits for a change of a run, and returns how long that took from begun on, in milliseconds.
func (a asker) until(run int64, begun time.Time, done func(ledger.Run) bool) (float64, error) {
	for late := time.After(time.Minute); ; {
		changed := a.l.Changed()
		r, err := a.l.Run(a.ctx, run)
		if err != nil {
			return 0, err
		}
		if done(r) {
			return float64(time.Since(begun).Microseconds()) / 1000, nil
		}
		select {
		case <-changed:
		case <-a.ctx.Done():
			return 0, a.ctx.Err()
		case <-late:
			return 0, fmt.Errorf("run %d is %s for a minute", run, r.State)
		}
	}
}

func started(r ledger.Run) bool { return r.Attempt > 0 }

// latencies are those of two nodes: from the request to the first attempt, from a cancellation to its end, and from the kill of the process that
// does a run to the next attempt.
func (b *engineBench) latencies(ctx context.Context, note func(string, float64)) error {
	return b.inSchema(ctx, func(url string, db *sql.DB) (err error) {
		l, err := ledger.Open(ctx, ledger.Options{DB: db})
		if err != nil {
			return err
		}
		defer l.Close()
		workers := map[string]*engineWorker{}
		for range 2 {
			w, err := b.startWorker(ctx, "engine-node", url)
			if err != nil {
				return err
			}
			workers[w.name] = w
			defer func() { err = errors.Join(err, w.end()) }()
		}
		m, err := l.Join(ctx, ledger.Node{Name: "asks", Host: "here", PID: os.Getpid()})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, m.Leave(context.WithoutCancel(ctx))) }()

		a := asker{ctx, l}
		if err := b.starts99(a, note); err != nil {
			return err
		}
		for range b.cancels {
			if err := a.cancel(note); err != nil {
				return err
			}
		}
		return a.rescue(workers, note)
	})
}

func (b *engineBench) starts99(a asker, note func(string, float64)) error {
	var waits []float64
	for range b.starts {
		begun := time.Now()
		run, err := a.enqueue("j")
		if err != nil {
			return err
		}
		took, err := a.until(run, begun, started)
		if err != nil {
			return err
		}
		waits = append(waits, took)
	}
	slices.Sort(waits)
	note("start50", waits[len(waits)/2])
	note("start99", waits[(len(waits)-1)*99/100])
	return nil
}

func (a asker) cancel(note func(string, float64)) error {
	run, err := a.enqueue(hangs)
	if err != nil {
		return err
	}
	if _, err := a.until(run, time.Now(), started); err != nil {
		return err
	}
	begun := time.Now()
	if _, err := a.l.RequestCancel(a.ctx, run, "a measurement"); err != nil {
		return err
	}
	took, err := a.until(run, begun, func(r ledger.Run) bool { return r.State == domain.StateFinished })
	note("cancel", took)
	return err
}

func (a asker) rescue(workers map[string]*engineWorker, note func(string, float64)) error {
	run, err := a.enqueue(hangs)
	if err != nil {
		return err
	}
	if _, err := a.until(run, time.Now(), started); err != nil {
		return err
	}
	nodes, err := a.l.AttemptNodes(a.ctx, run)
	if err != nil {
		return err
	}
	w := workers[nodes[1]]
	if w == nil {
		return fmt.Errorf("run %d is done by %q, which is none of the measurement", run, nodes[1])
	}

	time.Sleep(time.Second) // as processes that have been at work for a while, and know of each other
	begun := time.Now()
	if err := w.kill(); err != nil {
		return err
	}
	took, err := a.until(run, begun, func(r ledger.Run) bool { return r.Attempt > 1 })
	note("rescue", took)
	return err
}

// processes is a number of them.
func processes(n int) string {
	if n == 1 {
		return "1 process"
	}
	return fmt.Sprintf("%d processes", n)
}
