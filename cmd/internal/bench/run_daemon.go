package bench

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"rouse/agentdb/ledger"
	"rouse/cmd/internal/api"
	"rouse/cmd/internal/daemon"
	"rouse/internal/domain"
	"rouse/scheduler/dispatch"
)

// runsChild is the process in which a daemon does runs that are measured: it tells of them as a runSample.
func runsChild(ctx context.Context, dir, url string, sizes runSizes, out io.Writer) error {
	if err := countSQLiteWrites(); err != nil {
		return err
	}

	c := &runsDaemon{dir: dir, sizes: sizes}
	if err := c.write(url); err != nil {
		return err
	}

	// The clock of the first part is behind midnight, that of the second before the next one, at which all are due.
	var s runSample
	began := time.Now()
	midnight := began.UTC().Truncate(24 * time.Hour)
	var starting time.Duration
	err := c.serve(ctx, midnight.Add(time.Hour).Sub(began), func(ctx context.Context, client *api.Client) (err error) {
		starting = time.Since(began)
		if s.Single, err = c.oneByOne(ctx, client, "single"); err != nil {
			return err
		}
		s.Model, err = c.oneByOne(ctx, client, "model")
		return err
	})
	if err != nil {
		return err
	}

	due := midnight.Add(24 * time.Hour)
	ahead := time.Until(due) - 3*starting - time.Second
	if err := c.serve(ctx, ahead, func(ctx context.Context, _ *api.Client) (err error) {
		s.Burst, err = c.burst(ctx, due.Add(-ahead))
		return err
	}); err != nil {
		return err
	}

	if s.Bare, err = bareBurst(ctx, filepath.Join(dir, "bare.db"), sizes.due); err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(s)
}

// runsDaemon is a home whose daemon is measured.
type runsDaemon struct {
	dir   string
	sizes runSizes
}

// write makes its configuration: a job for each run that is due at once, and two that somebody asks for. Nobody is told of a success.
func (c *runsDaemon) write(url string) error {
	work := filepath.Join(c.dir, "work")
	if err := os.Mkdir(work, 0o755); err != nil {
		return err
	}
	for i := range runSteps + 1 {
		if err := os.WriteFile(filepath.Join(work, fmt.Sprint("f", i)), []byte(resultMark+strings.Repeat("what a file says. ", 50)), 0o600); err != nil {
			return err
		}
	}

	// What a result holds is kept as it is: a run that does nothing is one whose call returns a line.
	if err := os.WriteFile(filepath.Join(work, "line"), []byte("nothing to do\n"), 0o600); err != nil {
		return err
	}

	var text strings.Builder
	fmt.Fprintf(&text, `version: 1
home: ./home
timezone: UTC
dashboard: {listen: "127.0.0.1:0"}
limits: {runs: %[1]d, runs_per_agent: %[1]d}
models: [{name: stub, provider: openai, model: stub, base_url: "%[2]s/%[3]d/file_read/v1", api_key: none}]
agents: [{name: reader, workdir: ./work, model: stub}]
jobs:
  - {name: model, agent: reader, prompt: "Read the files.", notify: {on: [failure]}}
  - {name: single, agent: reader, playbook: [{call: file_read, with: {path: line}}], notify: {on: [failure]}}
`, runLanes, url, runSteps)
	for i := range c.sizes.due {
		fmt.Fprintf(&text, "  - {name: due%d, agent: reader, schedule: \"0 0 * * *\", playbook: [{call: file_read, with: {path: f0}}], notify: {on: [failure]}}\n", i)
	}
	return os.WriteFile(c.config(), []byte(text.String()), 0o600)
}

func (c *runsDaemon) config() string { return filepath.Join(c.dir, "rouse.yaml") }

// serve starts a daemon whose clock is ahead, and stops it after what is to be done while it serves.
func (c *runsDaemon) serve(ctx context.Context, ahead time.Duration, while func(context.Context, *api.Client) error) (err error) {
	cfg, err := daemon.Load(c.config(), "") //nolint:contextcheck // no model of this configuration is looked for
	if err != nil {
		return err
	}

	log, err := os.Create(filepath.Join(c.dir, "log"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, log.Close()) }()

	v := &daemon.LogVar{}
	d, err := daemon.Open(ctx, daemon.Options{
		Home: string(cfg.Home), Config: cfg, Serves: true, Logger: daemon.NewLogger(cfg, v, log), LogVar: v,
		Now: func() time.Time { return time.Now().Add(ahead) },
	})
	if err != nil {
		return err
	}
	defer d.Close() //nolint:contextcheck // it lets go of what it holds, whatever has ended

	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var failed error
	err = d.Serve(ctx, func(ctx context.Context) error {
		go func() {
			defer stop()
			failed = while(ctx, api.InProcess(d.Handler))
		}()
		return nil
	})
	return errors.Join(err, failed)
}

// oneByOne asks for runs of a job, each when the one before is over.
func (c *runsDaemon) oneByOne(ctx context.Context, client *api.Client, job string) (runCost, error) {
	run := func() error {
		var r api.Run
		if err := client.Post(ctx, "/v1/runs", api.RunRequest{Job: job}, &r); err != nil {
			return err
		}
		for r.State != domain.StateFinished {
			time.Sleep(500 * time.Microsecond)
			var detail api.RunDetail
			if err := client.Get(ctx, "/v1/runs/"+r.ID, nil, &detail); err != nil {
				return err
			}
			r = detail.Run
		}
		if r.Outcome != domain.OutcomeSuccess {
			return fmt.Errorf("a run of %s ended with %s: %s", job, r.Outcome, r.Error)
		}
		return nil
	}

	if err := run(); err != nil { // what only the first one needs
		return runCost{}, err
	}
	return c.measure(ctx, c.sizes.single, func() error {
		for range c.sizes.single {
			if err := run(); err != nil {
				return err
			}
		}
		return nil
	})
}

// burst waits until all are over that are due at an instant.
func (c *runsDaemon) burst(ctx context.Context, due time.Time) (runCost, error) {
	if time.Now().After(due) {
		return runCost{}, errors.New("the daemon was ready too late for the instant at which its runs are due; measure when less goes on")
	}

	db, err := c.open()
	if err != nil {
		return runCost{}, err
	}
	defer db.Close()

	var before int
	if err := db.QueryRowContext(ctx, `select coalesce(max(id), 0) from runs`).Scan(&before); err != nil {
		return runCost{}, err
	}
	time.Sleep(time.Until(due))
	cost, err := c.measure(ctx, c.sizes.due, func() error {
		for {
			var accepted, open int
			if err := db.QueryRowContext(ctx, `select coalesce(max(id), 0), (select count(*) from runs where state <> 'finished') from runs`).Scan(&accepted, &open); err != nil {
				return err
			}
			if accepted-before >= c.sizes.due && open == 0 {
				return nil
			}
			time.Sleep(100 * time.Millisecond) // asking is not what is measured
		}
	})
	if err != nil {
		return cost, err
	}

	var succeeded int
	if err := db.QueryRowContext(ctx, `select count(*) from runs where id > $1 and outcome = 'success' and triggered_by = 'schedule'`, before).Scan(&succeeded); err != nil {
		return cost, err
	}
	if succeeded != c.sizes.due {
		return cost, fmt.Errorf("of %d runs that were due at once %d succeeded", c.sizes.due, succeeded)
	}
	return cost, nil
}

// measure is what so many runs cost, each.
func (c *runsDaemon) measure(ctx context.Context, runs int, do func() error) (cost runCost, err error) {
	db, err := c.open()
	if err != nil {
		return cost, err
	}
	defer db.Close()

	kept, err := usedBytes(ctx, db)
	if err != nil {
		return cost, err
	}
	syncs, written, cpu, begin := sqliteWrites.syncs.Load(), sqliteWrites.bytes.Load(), cpuTime(), time.Now()
	if err := do(); err != nil {
		return cost, err
	}

	cost.Seconds = time.Since(begin).Seconds()
	each := func(total float64) float64 { return total / float64(runs) }
	cost.CPU = each(float64(cpuTime()-cpu) / float64(time.Millisecond))
	cost.Syncs, cost.Written = each(float64(sqliteWrites.syncs.Load()-syncs)), each(float64(sqliteWrites.bytes.Load()-written))
	cost.Rate = float64(runs) / cost.Seconds
	after, err := usedBytes(ctx, db)
	cost.Kept = each(after - kept)
	return cost, err
}

// open opens the ledger beside the daemon, to read.
func (c *runsDaemon) open() (*sql.DB, error) {
	return sql.Open("sqlite", filepath.Join(c.dir, "home", "ledger.db")+"?_pragma=query_only(1)")
}

// usedBytes are those of a database that hold something.
func usedBytes(ctx context.Context, db *sql.DB) (float64, error) {
	var pages, free, size int64
	for query, into := range map[string]*int64{"pragma page_count": &pages, "pragma freelist_count": &free, "pragma page_size": &size} {
		if err := db.QueryRowContext(ctx, query).Scan(into); err != nil {
			return 0, err
		}
	}
	return float64((pages - free) * size), nil
}

// bareBurst is how many runs a second the queue alone does, with as many lanes: each is started and finished durably, and
// nothing is done for it.
func bareBurst(ctx context.Context, path string, runs int) (perSecond float64, err error) {
	l, err := ledger.Open(ctx, ledger.Options{Path: path})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, l.Close()) }()

	requests := make([]ledger.Request, runs)
	for i := range requests {
		requests[i] = ledger.Request{Job: fmt.Sprint("due", i), Agent: "reader", Trigger: domain.TriggerSchedule}
	}
	started := make(chan int64, runs)
	d, err := dispatch.New(dispatch.Options{Ledger: l, Executor: noop{started: started}, Runs: runLanes, RunsPerAgent: runLanes})
	if err != nil {
		return 0, err
	}

	begin := time.Now()
	if _, err := l.Enqueue(ctx, requests...); err != nil {
		return 0, err
	}
	ctx, stop := context.WithCancel(ctx)
	over := make(chan error, 1)
	go func() { over <- d.Run(ctx) }()
	for range runs {
		<-started
	}

	stop()
	err = <-over // the last results are written when it returns
	return float64(runs) / time.Since(begin).Seconds(), err
}
