package bench

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"rouse/agentdb/ledger"
	"rouse/cmd/internal/daemon"
)

// What a filled home holds.
const (
	homeJobs      = 20
	homeAgents    = 4
	homeEvents    = 20 // of each run
	homeBatch     = 20_000
	homeBusyShare = 6                   // of ten runs, those of the busy job
	homeLongAgo   = 10                  // the part of the runs in which the last job has some, as a divisor: it ended there
	homeSpan      = 60 * 24 * time.Hour // over which the runs are spread, up to now
)

func homeJob(i int) string   { return fmt.Sprintf("job%d", i) }
func homeAgent(i int) string { return fmt.Sprintf("agent%d", i) }

// The jobs that are unlike the others: one has most of the runs, one had its last long ago, and one never had any.
var busyJob, longAgoJob, neverJob = homeJob(0), homeJob(homeJobs - 1), homeJob(homeJobs)

// filledHome is a home with many runs, and the daemon on it.
type filledHome struct {
	self     string // this program
	dir      string // of the configuration and the home
	runs     int
	progress io.Writer

	pid int // of the daemon
}

func (b *filledHome) report(format string, args ...any) {
	fmt.Fprintf(b.progress, format+"\n", args...)
}

func (b *filledHome) config() string { return filepath.Join(b.dir, "rouse.yaml") }
func (b *filledHome) home() string   { return filepath.Join(b.dir, "home") }
func (b *filledHome) ledger() string { return filepath.Join(b.home(), "ledger.db") }

func (b *filledHome) start(ctx context.Context) (*exec.Cmd, error) {
	process, err := startDaemon(ctx, b.self, b.config(), filepath.Join(b.dir, "log"))
	if err == nil {
		b.pid = process.Process.Pid
	}
	return process, err
}

// homeConfig has a busy job, others that share what it leaves, and one without runs.
func homeConfig() string {
	var out strings.Builder
	out.WriteString("version: 1\nhome: ./home\ntimezone: UTC\ndashboard: {listen: \"127.0.0.1:0\"}\nagents:\n")
	for i := range homeAgents {
		fmt.Fprintf(&out, "  - {name: %s}\n", homeAgent(i))
	}
	out.WriteString("jobs:\n")
	for i := range homeJobs + 1 {
		fmt.Fprintf(&out, "  - {name: %s, agent: %s, schedule: \"%d %d * * *\", on_miss: skip, playbook: [{call: db_schema}]}\n", homeJob(i), homeAgent(i%homeAgents), i, i)
	}
	return out.String()
}

// configure writes the configuration; the first process that reads it makes the home.
func (b *filledHome) configure() error {
	return errors.Join(os.MkdirAll(b.dir, 0o700), os.WriteFile(b.config(), []byte(homeConfig()), 0o600))
}

// fill makes a home with so many runs, unless it is there. The daemon makes it, and bare SQL fills it, for a million runs would
// take an hour.
func (b *filledHome) fill(ctx context.Context) error {
	if _, err := os.Stat(filepath.Join(b.dir, "filled")); err == nil {
		return nil
	}
	if err := b.configure(); err != nil {
		return err
	}

	process, err := b.start(ctx)
	if err != nil {
		return err
	}
	if err := errors.Join(process.Process.Signal(os.Interrupt), process.Wait()); err != nil {
		return err
	}

	if err := b.insertRuns(ctx); err != nil {
		return err
	}
	// The daemon refuses what was not written by it.
	if err := ledger.Accept(ctx, daemon.LedgerOptions(b.home())); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(b.dir, "filled"), nil, 0o600)
}

// insertRuns fills a ledger that nobody has open.
func (b *filledHome) insertRuns(ctx context.Context) (err error) {
	db, err := sql.Open("sqlite", b.ledger()+"?_pragma=synchronous(OFF)&_pragma=cache_size(-200000)")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	db.SetMaxOpenConns(1)

	now := time.Now()
	for from := 1; from <= b.runs; from += homeBatch {
		to := min(from+homeBatch-1, b.runs)
		if err := fillRuns(ctx, db, now, from, to, b.runs); err != nil {
			return err
		}
		b.report("%s of %s runs filled in, %.0f s", grouped(to), grouped(b.runs), time.Since(now).Seconds())
	}
	return nil
}

// fillRuns adds the runs of some ids with everything that is recorded of one: its instant, an attempt, two turns with a call
// each, and events. Every fiftieth failed, every seventh of the others had nothing to do.
func fillRuns(ctx context.Context, db *sql.DB, now time.Time, from, to, of int) (err error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, tx.Rollback())
		}
	}()

	// i is the id of the run, t when it was due, j the number of its job.
	first, step := now.Add(-homeSpan).UnixMilli(), max(1, homeSpan.Milliseconds()/int64(of))
	run := fmt.Sprintf(`with recursive n(i) as (select %d union all select i + 1 from n where i < %d),
		run(i, t, j, failed) as (select i, %d + i * %d, case when i %% 10 < %d or i %% %[6]d = %[6]d - 1 and i > %[7]d then 0 else 1 + i %% %[6]d end, i %% 50 = 0 from n) `,
		from, to, first, step, homeBusyShare, homeJobs-1, of/homeLongAgo)
	for _, statement := range []string{
		`insert into runs (id, key, job, agent, triggered_by, detail, state, outcome, exit, attempt, scheduled_at, queued_at, started_at, finished_at,
			summary, error, steps, calls, tokens_in, tokens_out, cost_micro_usd)
		` + run + `select i, 'time/job' || j || '/' || t, 'job' || j, 'agent' || (j % ` + fmt.Sprint(homeAgents) + `), 'schedule', json_object('source', 'cron', 'nominal', strftime('%Y-%m-%dT%H:%M:%SZ', t / 1000, 'unixepoch')),
			'finished', case when failed then 'error' when i % 7 = 0 then 'nothing' else 'success' end, 'final_response', 1, t, t, t + 20, t + 20 + i % 9000,
			case when failed then '' else 'Read ' || (i % 90) || ' rows of the table orders and wrote the report of the day.' end,
			case when failed then 'row 14: "12,3O" is not a number' else '' end, 2, 2, 1200, 300, 2500 from run`,
		`insert into attempts (run, number, state, started_at, finished_at) ` + run + `select i, 1, case when failed then 'failed' else 'done' end, t + 20, t + 20 + i % 9000 from run`,
		`insert into steps (run, attempt, number, message, body, tokens_in, tokens_out, started_at, finished_at, cost_micro_usd, model)
		` + run + `select i, 1, k.value, '', 'I read the table, and then I write down what came of it.', 600, 150, t + 20, t + 1020, 1250, 'mini' from run, json_each('[1,2]') k`,
		`insert into calls (run, attempt, step, position, id, key, tool, args, effect, state, envelope, started_at, finished_at)
		` + run + `select i, 1, k.value, 0, 'c' || k.value, 'c' || k.value, 'db_query', '{"sql":"select day, sum(amount) from orders group by day"}', 'none', case when failed and k.value = 2 then 'failed' else 'done' end,
			case when failed and k.value = 2 then '{"ok":false,"kind":"invalid_args","message":"row 14 is not a number"}' else '{"ok":true,"result":{"rows":[{"day":"2026-11-01","sum":120.5}]}}' end, t + 30, t + 40 from run, json_each('[1,2]') k`,
		`insert into occurrences (job, nominal, actual, decision, reason, run, recorded_at, source) ` + run + `select 'job' || j, t, t, 'run', '', i, t, 'cron' from run`,
		`insert into occurrences (job, nominal, actual, decision, reason, run, recorded_at, source) ` + run + `select 'job' || j, t + 1, t + 1, 'skipped', 'overlap: run ' || i || ' is still running', 0, t, 'cron' from run where i % 40 = 0`,
		// Their kinds in turn: the first and the last are those of the run.
		`insert into events (run, seq, job, at, kind, data) ` + run + fmt.Sprintf(`, kinds(k, kind) as (select key, value from json_each('["run.queued","run.started","step.started","step.finished","call.started","call.finished","step.started","step.finished","call.started","call.finished"]'))
			select i, e.value, 'job' || j, t + e.value * 40, case when e.value = %d then 'run.finished' when e.value = 1 then 'run.queued' else (select kind from kinds where k = e.value %% 8 + 2) end,
				'{"step":1,"tool":"db_query","attempt":1}' from run, (with recursive s(value) as (select 1 union all select value + 1 from s where value < %d) select value from s) e`, homeEvents, homeEvents),
	} {
		if _, err := tx.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("%.60s: %w", statement, err)
		}
	}
	return tx.Commit()
}
