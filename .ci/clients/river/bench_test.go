package river

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/ledgertest"
	"rouse/internal/ledger/node"
	"rouse/scheduler/dispatch"
	engine "rouse/scheduler/dispatch/river"
)

// As many runs as this are on at once in each process.
const lanes = 64

// TestMain is a worker process where it is started as one.
func TestMain(m *testing.M) {
	kind, url, _ := strings.Cut(os.Getenv("ROUSE_ENGINE_BENCH"), " ")
	if kind == "" {
		os.Exit(m.Run())
	}

	work := workLedger
	if kind == "river" {
		work = workRiver
	}
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	if err := work(ctx, url, func() { fmt.Println("ready") }); err != nil {
		fmt.Fprintln(os.Stderr, kind, err)
		os.Exit(1)
	}
}

// worker is a process of its own, until its input is closed.
type worker struct {
	cmd *exec.Cmd
	in  io.Closer
}

func startWorker(b *testing.B, kind, url string) *worker {
	b.Helper()
	program, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	cmd := exec.CommandContext(b.Context(), program)
	cmd.Env = append(os.Environ(), "ROUSE_ENGINE_BENCH="+kind+" "+url)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		b.Fatalf("a worker (%s) does not get ready: %v", kind, err)
	}
	return &worker{cmd, in}
}

func (w *worker) end(b *testing.B) {
	b.Helper()
	w.in.Close()
	if err := w.cmd.Wait(); err != nil {
		b.Error(err)
	}
}

// noop is an executor whose runs do nothing.
type noop struct{ dispatch.ExecutorFunc }

// Policy implements dispatch.Executor.
func (noop) Policy(string) dispatch.Policy { return dispatch.Policy{Resume: true, Concurrency: -1} }

func workLedger(ctx context.Context, url string, ready func()) error {
	db, err := sql.Open("pgx", url)
	if err != nil {
		return err
	}
	defer db.Close()
	db.SetMaxOpenConns(8)
	db.SetMaxIdleConns(8)
	l, err := ledger.Open(ctx, ledger.Options{DB: db})
	if err != nil {
		return err
	}
	defer l.Close()
	m, err := l.Nodes.Join(ctx, node.Node{Name: fmt.Sprint("node", os.Getpid()), Host: "here", PID: os.Getpid(), Triggers: true, Lanes: lanes})
	if err != nil {
		return err
	}

	e := noop{func(context.Context, ledger.Run, ledger.Attempt) (ledger.Result, error) {
		return ledger.Result{Outcome: domain.OutcomeSuccess, Exit: domain.ExitFinalResponse}, nil
	}}
	pool, err := pgxpool.New(ctx, url+"&pool_max_conns=5&synchronous_commit=off") // as a daemon does
	if err != nil {
		return err
	}
	defer pool.Close()
	engine := engine.New(engine.Options{Ledger: l, Pool: pool, Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))})
	d, err := dispatch.New(dispatch.Options{Ledger: l, Engine: engine, Executor: e, Runs: lanes, RunsPerAgent: 1 << 20, Now: l.Now})
	if err != nil {
		return err
	}
	ready()
	return errors.Join(d.Run(ctx), m.Leave(context.WithoutCancel(ctx)))
}

// args are the arguments of a job of River that does nothing.
type args struct {
	N int `json:"n"`
}

// Kind implements river.JobArgs.
func (args) Kind() string { return "noop" }

type riverWorker struct {
	river.WorkerDefaults[args]
	pool *pgxpool.Pool
}

// Work implements river.Worker: what a run has written and its completion are one transaction, as with the ledger.
func (w *riverWorker) Work(ctx context.Context, job *river.Job[args]) error {
	return pgx.BeginFunc(ctx, w.pool, func(tx pgx.Tx) error {
		_, err := river.JobCompleteTx[*riverpgxv5.Driver](ctx, tx, job)
		return err
	})
}

func workRiver(ctx context.Context, url string, ready func()) error {
	pool, err := pgxpool.New(ctx, url+"&pool_max_conns=8")
	if err != nil {
		return err
	}
	defer pool.Close()
	workers := river.NewWorkers()
	river.AddWorker(workers, &riverWorker{pool: pool})
	c, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: lanes}}, Workers: workers,
		FetchCooldown: time.Millisecond, FetchPollInterval: 100 * time.Millisecond,
	})
	if err != nil {
		return err
	}
	if err := c.Start(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	ready()
	<-ctx.Done()
	return c.Stop(context.WithoutCancel(ctx))
}

// BenchmarkEngine drains queued runs with one, two and four processes, and after each of them as many jobs with River.
func BenchmarkEngine(b *testing.B) {
	jobs := variable(b, "ROUSE_BENCH_RUNS", 5000)
	passes := variable(b, "ROUSE_BENCH_PASSES", 5)
	processes := []int{1, 2, 4}
	if most := variable(b, "ROUSE_BENCH_PROCESSES", 0); most > 0 {
		processes = []int{most}
	}
	for range b.N {
		figures := map[string][]float64{}
		for pass := range passes {
			for _, n := range processes {
				ours, theirs := drainLedger(b, n, jobs), drainRiver(b, n, jobs)
				b.Logf("pass %d, %d processes: %.0f runs/s, River %.0f/s", pass+1, n, ours, theirs)
				figures[fmt.Sprintf("runs/s_%d", n)] = append(figures[fmt.Sprintf("runs/s_%d", n)], ours)
				figures[fmt.Sprintf("river/s_%d", n)] = append(figures[fmt.Sprintf("river/s_%d", n)], theirs)
				figures[fmt.Sprintf("ratio_%d", n)] = append(figures[fmt.Sprintf("ratio_%d", n)], ours/theirs)
			}
		}
		for name, values := range figures {
			slices.Sort(values)
			b.ReportMetric(values[len(values)/2], name)
		}
	}
}

func variable(b *testing.B, name string, otherwise int) int {
	b.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise // 0: none was named
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		b.Fatalf("%s=%q is not a number of them", name, text)
	}
	return n
}

// drainLedger is how many runs a second are started and finished that were queued before.
func drainLedger(b *testing.B, processes, jobs int) float64 {
	b.Helper()
	url, _ := ledgertest.Postgres(b)
	l := ledgertest.OpenOn(b, url)
	batch := make([]ledger.Request, 500)
	for i := range batch {
		batch[i] = ledger.Request{Job: "j", Trigger: domain.TriggerAPI}
	}
	for range jobs / len(batch) {
		if _, err := l.Enqueue(b.Context(), batch...); err != nil {
			b.Fatal(err)
		}
	}
	return drain(b, "ledger", url, processes, jobs, `select count(*) from runs where state = 'finished'`)
}

func drainRiver(b *testing.B, processes, jobs int) float64 {
	b.Helper()
	url, _ := ledgertest.Postgres(b)
	pool, err := pgxpool.New(b.Context(), url)
	if err != nil {
		b.Fatal(err)
	}
	defer pool.Close()
	m, err := rivermigrate.New(riverpgxv5.New(pool), nil)
	if err != nil {
		b.Fatal(err)
	}
	if _, err := m.Migrate(b.Context(), rivermigrate.DirectionUp, nil); err != nil {
		b.Fatal(err)
	}
	c, err := river.NewClient(riverpgxv5.New(pool), &river.Config{})
	if err != nil {
		b.Fatal(err)
	}
	for done := 0; done < jobs; done += 500 {
		batch := make([]river.InsertManyParams, 500)
		for i := range batch {
			batch[i].Args = args{done + i}
		}
		if _, err := c.InsertMany(b.Context(), batch); err != nil {
			b.Fatal(err)
		}
	}
	return drain(b, "river", url, processes, jobs, `select count(*) from river_job where state = 'completed'`)
}

// drain counts from when a tenth is done, so that the start of the processes does not count, to when all but a tenth is.
func drain(b *testing.B, kind, url string, processes, jobs int, query string) float64 {
	b.Helper()
	db := ledgertest.OpenPostgres(b, url)
	if _, err := db.ExecContext(b.Context(), "analyze"); err != nil { // both begin with the same knowledge of their tables
		b.Logf("not analyzed: %v", err)
	}
	workers := make([]*worker, processes)
	for i := range workers {
		workers[i] = startWorker(b, kind, url)
	}

	var from, to time.Time
	var first, last int
	for deadline := time.Now().Add(3 * time.Minute); last < jobs; {
		var n int
		if err := db.QueryRowContext(b.Context(), query).Scan(&n); err != nil {
			b.Fatal(err)
		}
		now := time.Now()
		if n >= jobs/10 && from.IsZero() {
			from, first = now, n
		}
		if n <= jobs*9/10 || to.IsZero() {
			to, last = now, n
		}
		if n == jobs {
			break
		}
		if now.After(deadline) {
			b.Fatalf("%s: %d of %d runs were done", kind, n, jobs)
		}
		time.Sleep(20 * time.Millisecond) // a poll that costs the measured nothing
	}
	for _, w := range workers {
		w.end(b)
	}
	if last <= first {
		b.Fatalf("%s: too fast to be measured with %d runs (ROUSE_BENCH_RUNS)", kind, jobs)
	}
	return float64(last-first) / to.Sub(from).Seconds()
}
