package ledger_test

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"rouse/internal/ledger"
	"rouse/internal/ledger/integrity"
	"rouse/internal/ledger/maint"
)

// manyRuns creates a ledger of finished runs, each with an attempt, a step, three calls and nine
// events.
func manyRuns(b *testing.B, dir string, runs int) {
	b.Helper()
	l := openIn(b, dir)
	if err := l.Close(); err != nil {
		b.Fatal(err)
	}
	db, err := sql.Open("sqlite", filepath.Join(dir, "ledger.db"))
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	numbers := func(n int) string {
		return "with recursive c(i) as (select 1 union all select i + 1 from c where i < " + strconv.Itoa(n) + ") "
	}
	for _, statement := range []string{
		"pragma synchronous = off",
		numbers(runs) + `insert into runs (key, job, agent, triggered_by, detail, state, outcome, exit, attempt, queued_at, started_at, finished_at, steps, calls, tokens_in, cost_micro_usd)
			select 'manual/' || i, 'job' || i % 50, 'a', 'manual', '{}', 'finished', 'success', 'ended_by_surface', 1, i * 1000, i * 1000, i * 1000 + 500, 1, 3, 10, 5 from c`,
		`insert into attempts (run, number, state, started_at, finished_at) select id, 1, 'done', started_at, finished_at from runs`,
		`insert into steps (run, attempt, number, message, started_at, finished_at, tokens_in, cost_micro_usd) select id, 1, 1, '{"text":"` + "a sentence of a usual length, as models write them, and a second one behind it" + `"}', started_at, finished_at, 10, 5 from runs`,
		numbers(3) + `insert into calls (run, attempt, step, position, id, key, tool, args, effect, state, envelope, started_at, finished_at)
			select id, 1, 1, i, 'call_' || i, 'k' || i, 'db_query', '{"sql":"select 1"}', 'read', 'done', '{"ok":true,"result":{"columns":["n"],"rows":[{"n":1}]}}', started_at, finished_at from runs, c`,
		numbers(9) + `insert into events (run, seq, job, at, kind, data) select id, i, job, started_at, 'call.finished', '{"step":1,"tool":"db_query","state":"done","ms":3}' from runs, c`,
	} {
		if _, err := db.ExecContext(b.Context(), statement); err != nil {
			b.Fatal(err)
		}
	}
}

// The environment variable ROUSE_BENCH_RUNS sets the number of runs in these ledgers.
func benchRuns() int {
	if n, err := strconv.Atoi(os.Getenv("ROUSE_BENCH_RUNS")); err == nil {
		return n
	}
	return 20_000
}

// BenchmarkAudit measures the time and the memory of an audit, without SQLite's own memory.
func BenchmarkAudit(b *testing.B) {
	dir, runs := b.TempDir(), benchRuns()
	manyRuns(b, dir, runs)
	var before, after runtime.MemStats
	for b.Loop() {
		l, err := ledger.OpenShared(b.Context(), ledger.Options{Path: filepath.Join(dir, "ledger.db"), Blobs: filepath.Join(dir, "blobs")})
		if err != nil {
			b.Fatal(err)
		}
		runtime.GC()
		runtime.ReadMemStats(&before)
		err = integrity.Audit(b.Context(), l.DB, l.Blobs, integrity.Options{Begin: func(integrity.Check) {}, Found: func(v integrity.Violation) error {
			b.Errorf("%s: %s", v.Check, v.Text)
			return nil
		}})
		if err != nil {
			b.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		if err := l.Close(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/float64(runs), "µs/run")
	b.ReportMetric(float64(after.HeapInuse)/(1<<20), "MiB-heap")
}

// BenchmarkWritesBesideBackup compares the duration of a write alone with that of a write during
// repeated backups.
func BenchmarkWritesBesideBackup(b *testing.B) {
	dir := b.TempDir()
	manyRuns(b, dir, benchRuns())
	if err := maint.Accept(b.Context(), ledger.Options{Path: filepath.Join(dir, "ledger.db")}); err != nil {
		b.Fatal(err)
	}
	l := openIn(b, dir)

	const writes = 500
	p99 := func() float64 {
		var all []time.Duration
		for range writes {
			begun := time.Now()
			if err := l.Events.Append(b.Context(), ledger.Event{Kind: "bench"}); err != nil {
				b.Fatal(err)
			}
			all = append(all, time.Since(begun))
		}
		slices.Sort(all)
		return float64(all[len(all)*99/100].Microseconds()) / 1000
	}

	for b.Loop() {
		alone := p99()
		ctx, stop := context.WithCancel(b.Context())
		copies, done := 0, make(chan error)
		go func() {
			var err error
			for ; ctx.Err() == nil && err == nil; copies++ {
				err = copyOnce(ctx, l, filepath.Join(dir, "copy.sqlite"))
			}
			done <- err
		}()
		beside := p99()
		stop()
		if err := <-done; err != nil && ctx.Err() == nil {
			b.Fatal(err)
		}
		b.ReportMetric(alone, "ms-p99-alone")
		b.ReportMetric(beside, "ms-p99-beside")
		b.ReportMetric(float64(copies), "copies")
	}
}

func copyOnce(ctx context.Context, l *ledger.Ledger, to string) error {
	s, release, err := l.Snapshot(ctx, func(context.Context) error { return nil })
	if err != nil {
		return err
	}
	defer release()
	defer func() { _ = s.Close() }() // it was only used to read
	return s.CopyTo(ctx, to, nil)
}
