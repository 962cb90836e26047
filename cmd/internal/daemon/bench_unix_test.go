//go:build unix

package daemon

import (
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"rouse/cmd/internal/cmdtest"
	"rouse/cmd/internal/homedir"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/maint"
	"rouse/internal/ledger/runs"
)

const benchConfig = `version: 1
home: ./home
timezone: UTC
defaults: {notify: {on: []}}
limits: {runs: 16, runs_per_agent: 16}
agents: [{name: a, workdir: ./work}]
jobs:
  - {name: read, agent: a, overlap: allow, playbook: [{call: file_read, with: {path: line}}]}
  - {name: minute, agent: a, schedule: "* * * * *", on_miss: skip, playbook: [{call: file_read, with: {path: line}}]}
  - {name: drop, agent: a, overlap: allow, watch: {path: ./inbox, responsiveness: fast}, playbook: [{call: file_read, with: {path: line}}]}
`

// benchHome makes the folder of a daemon, without a home in it.
func benchHome(b *testing.B) (dir string) {
	dir = cmdtest.Write(b, map[string]string{"rouse.yaml": benchConfig, "work/line": "one line\n"})
	if err := os.Mkdir(filepath.Join(dir, "inbox"), 0o755); err != nil {
		b.Fatal(err)
	}
	return dir
}

// cpuTime returns the CPU time of this process.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// finished waits until a run is over and returns it.
func (s *served) finished(id int64) ledger.Run {
	for {
		changed := s.ledger.Changed()
		r, err := s.ledger.Runs.Get(s.t.Context(), id)
		if err != nil {
			s.t.Fatal(err)
		}
		if r.State == domain.StateFinished {
			if r.Outcome != domain.OutcomeSuccess {
				s.t.Fatalf("run %d ended with %s: %s", id, r.Outcome, r.Error)
			}
			return r
		}
		<-changed
	}
}

// BenchmarkRuns executes a thousand runs of a playbook with one call, from the request until they
// are recorded as finished.
func BenchmarkRuns(b *testing.B) {
	const runs = 1000
	s := ServeIn(b, benchHome(b), "rouse.yaml")
	requests := slices.Repeat([]ledger.Request{{Job: "read", Agent: "a", Trigger: domain.TriggerManual}}, runs)
	spent := cpuTime(b)
	for b.Loop() {
		accepted, err := s.ledger.Enqueue(b.Context(), requests...)
		if err != nil {
			b.Fatal(err)
		}
		// The lanes do not end runs in the order of their ids.
		for _, a := range slices.Backward(accepted) {
			s.finished(a.Run)
		}
	}

	n := float64(b.N) * runs
	b.ReportMetric(n/b.Elapsed().Seconds(), "runs/s")
	b.ReportMetric((cpuTime(b)-spent).Seconds()*1000/n, "cpu-ms/run")
}

// BenchmarkDrop writes a file into a watched folder. It reports the time until the run starts,
// without the settle window.
func BenchmarkDrop(b *testing.B) {
	const window = 200 * time.Millisecond // of "responsiveness: fast"
	dir := benchHome(b)
	s := ServeIn(b, dir, "rouse.yaml")
	var took []time.Duration
	last := int64(0)
	for b.Loop() {
		began := time.Now()
		if err := os.WriteFile(filepath.Join(dir, "inbox", fmt.Sprint(len(took))), fmt.Append(nil, len(took)), 0o644); err != nil {
			b.Fatal(err)
		}
		for {
			changed := s.ledger.Changed()
			runs, err := s.ledger.Runs.List(b.Context(), runs.Filter{Job: "drop", After: last, Limit: 1})
			if err != nil {
				b.Fatal(err)
			}
			if len(runs) == 1 && runs[0].Attempt > 0 {
				took, last = append(took, time.Since(began)-window), runs[0].ID
				break
			}
			<-changed
		}
		s.finished(last)
	}
	slices.Sort(took)
	b.ReportMetric(took[len(took)/2].Seconds()*1000, "p50-ms")
	b.ReportMetric(took[len(took)*99/100].Seconds()*1000, "p99-ms")
}

// BenchmarkHistory starts a daemon on a home with many runs, and requests listings.
// ROUSE_BENCH_RUNS is the number of runs.
func BenchmarkHistory(b *testing.B) {
	runs, err := strconv.Atoi(os.Getenv("ROUSE_BENCH_RUNS"))
	if err != nil {
		runs = 100_000
	}
	dir := benchHome(b)
	ServeIn(b, dir, "rouse.yaml").stop()
	fillHistory(b, filepath.Join(dir, "home"), runs)

	b.Run("ready", func(b *testing.B) {
		for b.Loop() {
			s := ServeIn(b, dir, "rouse.yaml")
			b.StopTimer()
			s.stop()
			b.StartTimer()
		}
	})

	s := ServeIn(b, dir, "rouse.yaml")
	for name, query := range map[string]url.Values{"jobs": nil, "runs": {"n": {"50"}}, "why": {"job": {"minute"}, "n": {"50"}}} {
		b.Run(name, func(b *testing.B) {
			var took []time.Duration
			for b.Loop() {
				began := time.Now()
				var answer any
				if err := s.client.Get(b.Context(), "/v1/"+name, query, &answer); err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(began))
			}
			slices.Sort(took)
			b.ReportMetric(took[len(took)*99/100].Seconds()*1000, "p99-ms")
		})
	}
}

// fillHistory adds one finished run of the job "minute" for each minute up to now.
func fillHistory(b *testing.B, home string, runs int) {
	db, err := sql.Open("sqlite", filepath.Join(home, "ledger.db")+"?_pragma=synchronous(OFF)")
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	const run = `with recursive n(i) as (select 1 union all select i + 1 from n where i < ?1), run(i, t) as (select i, ?2 - (?1 - i) * 60000 from n) `
	for _, statement := range []string{
		`insert into runs (id, key, job, agent, triggered_by, detail, state, outcome, exit, attempt, scheduled_at, queued_at, started_at, finished_at, summary, steps, calls) ` + run +
			`select i, 'time/minute/' || t, 'minute', 'a', 'schedule', '{}', 'finished', iif(i % 50, 'success', 'error'), 'final_response', 1, t, t, t + 20, t + 900, 'Read 90 rows.', 1, 1 from run`,
		`insert into attempts (run, number, state, started_at, finished_at) ` + run + `select i, 1, iif(i % 50, 'done', 'failed'), t + 20, t + 900 from run`,
		`insert into occurrences (job, nominal, actual, decision, reason, run, recorded_at, source) ` + run + `select 'minute', t, t, 'run', '', i, t, 'cron' from run`,
	} {
		if _, err := db.ExecContext(b.Context(), statement, runs, time.Now().Truncate(time.Minute).UnixMilli()); err != nil {
			b.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		b.Fatal(err)
	}
	if err := maint.Accept(b.Context(), homedir.LedgerOptions(home)); err != nil { // it was changed by another program
		b.Fatal(err)
	}
}
