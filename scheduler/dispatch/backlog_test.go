package dispatch_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/node"
	"rouse/internal/ledger/pause"
	"rouse/internal/ledger/runs"
	"rouse/scheduler/dispatch"
)

// many returns the number of runs for a test. It is a part of total, or total if ROUSE_TEST_RUNS is
// all, as in .ci/run.
func many(total int) int {
	if os.Getenv("ROUSE_TEST_RUNS") == "all" {
		return total
	}
	return total / scale
}

// fill queues runs in one commit. name returns the agent and the job of each run.
func fill(t testing.TB, l *ledger.Ledger, n int, name func(i int) (agent, job string)) []int64 {
	t.Helper()
	reqs := make([]ledger.Request, n)
	for i := range reqs {
		agent, job := name(i)
		reqs[i] = ledger.Request{Agent: agent, Job: job, Trigger: domain.TriggerAPI}
	}

	accepted, err := l.Enqueue(t.Context(), reqs...)
	if err != nil {
		t.Fatal(err)
	}

	ids := make([]int64, n)
	for i, a := range accepted {
		ids[i] = a.Run
	}

	return ids
}

func one(agent, job string) func(int) (string, string) {
	return func(int) (string, string) { return agent, job }
}

// TestTenThousandRunsOfOneJob checks that ten thousand runs that wait for the lanes of one job are
// executed once each, while other lanes stay free. The queue is not read again for each of them.
func TestTenThousandRunsOfOneJob(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.o.Runs, b.o.RunsPerAgent = 100, 100
		b.e.policy = func(string) dispatch.Policy { return dispatch.Policy{Concurrency: 64} }
		var read atomic.Int64
		b.e.blocked = func(ledger.Run) string { read.Add(1); return "" }
		total := many(10_000)
		fill(t, b.l, total, one("a", "j"))
		var mu sync.Mutex
		seen := map[int64]int{}
		b.start(func(_ context.Context, r ledger.Run, _ ledger.Attempt) (ledger.Result, error) {
			mu.Lock()
			defer mu.Unlock()
			seen[r.ID]++
			return success, nil
		})

		synctest.Wait()
		for id, n := range seen {
			if n != 1 {
				t.Errorf("run %d was executed %d times", id, n)
			}
		}

		if c, err := b.l.Runs.Counts(t.Context()); err != nil || c != (runs.Counts{}) || len(seen) != total {
			t.Errorf("%d were executed, left: %+v (%v)", len(seen), c, err)
		}
		if n := read.Load(); n > int64(2*total) {
			t.Errorf("%d runs were read from the queue to start %d", n, total)
		}
	})
}

// TestManyJobQueues checks that every run is executed once, and that the runs of one agent start in
// the order of their acceptance.
func TestManyJobQueues(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.o.Runs = 7 // one for each agent
		fill(t, b.l, many(1_500), func(i int) (string, string) { return fmt.Sprint("a", i%7), fmt.Sprint("j", i%21) })
		var mu sync.Mutex
		got := map[string][]int64{}
		b.start(func(_ context.Context, r ledger.Run, _ ledger.Attempt) (ledger.Result, error) {
			mu.Lock()
			defer mu.Unlock()
			got[r.Agent] = append(got[r.Agent], r.ID)
			return success, nil
		})

		synctest.Wait()
		n := 0
		for agent, ids := range got {
			n += len(ids)
			if !slices.IsSorted(ids) {
				t.Errorf("%s: not in the order of acceptance", agent)
			}
			if len(slices.Compact(ids)) != len(ids) {
				t.Errorf("%s: a run was executed twice", agent)
			}
		}
		if n != many(1_500) {
			t.Errorf("%d runs were executed", n)
		}
	})
}

// TestOneJobDoesNotHoldUpOthers checks that other runs start at once behind thousands of runs that
// wait for one lane. It covers runs from before the daemon's start and later ones.
func TestOneJobDoesNotHoldUpOthers(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		fill(t, b.l, many(2_000), one("busy", "j"))
		before := enqueue(t, b.l, "free", "j2")
		b.start(func(ctx context.Context, r ledger.Run, _ ledger.Attempt) (ledger.Result, error) {
			if r.Agent == "busy" {
				<-ctx.Done()
			}
			return success, nil
		})

		b.o.Drain = time.Nanosecond
		if r := b.run(before); r.Outcome != domain.OutcomeSuccess {
			t.Errorf("accepted before: %+v", r)
		}
		if r := b.run(enqueue(t, b.l, "free", "j2")); r.Outcome != domain.OutcomeSuccess {
			t.Errorf("accepted later: %+v", r)
		}
	})
}

// TestOldRunsComeBackInALongQueue checks that old runs in a long queue are found when they become
// claimable: a retry, and a run that was held back until a time.
func TestOldRunsComeBackInALongQueue(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.e.policy = func(job string) dispatch.Policy {
			return dispatch.Policy{Attempts: 2, Backoff: time.Minute, On: []domain.Outcome{domain.OutcomeError}}
		}
		flaky, done := enqueue(t, b.l, "flaky", "f"), enqueue(t, b.l, "done", "d")
		later, err := b.l.Enqueue(t.Context(), ledger.Request{Agent: "later", Job: "l", Trigger: domain.TriggerAPI, NotBefore: time.Now().Add(time.Minute)})
		if err != nil {
			t.Fatal(err)
		}

		fill(t, b.l, many(2_000), one("busy", "j"))
		b.o.Drain = time.Nanosecond
		b.start(func(ctx context.Context, r ledger.Run, a ledger.Attempt) (ledger.Result, error) {
			switch {
			case r.Agent == "busy":
				<-ctx.Done()
			case r.Agent == "flaky" && a.Number == 1:
				return ledger.Result{Outcome: domain.OutcomeError, Error: "flaky"}, nil
			}
			return success, nil
		})

		b.run(done)
		if _, err := b.l.Retry(t.Context(), done); err != nil {
			t.Fatal(err)
		}

		time.Sleep(2 * time.Minute)
		for id, attempts := range map[int64]int{flaky: 2, done: 2, later[0].Run: 1} {
			if r := b.run(id); r.Outcome != domain.OutcomeSuccess || r.Attempt != attempts {
				t.Errorf("run %d: %+v", id, r)
			}
		}
	})
}

// TestManyBlockedRuns checks that thousands of blocked runs do not delay other runs, and start when
// their obstacle is gone.
func TestManyBlockedRuns(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		var held atomic.Bool
		held.Store(true)
		b.e.blocked = func(r ledger.Run) string {
			if held.Load() && r.Job == "prompt" {
				return "no_model"
			}
			return ""
		}

		// Fewer lanes than blocked runs, but enough for the runs to share commits afterwards.
		b.o.Runs, b.o.RunsPerAgent = 32, 32
		b.e.policy = func(string) dispatch.Policy { return dispatch.Policy{Concurrency: 32} }
		prompts := fill(t, b.l, many(1_000), one("a", "prompt"))
		b.start(func(context.Context, ledger.Run, ledger.Attempt) (ledger.Result, error) { return success, nil })

		for range 20 {
			if r := b.run(enqueue(t, b.l, "a", "playbook")); r.Outcome != domain.OutcomeSuccess {
				t.Fatalf("a run behind them: %+v", r)
			}
		}

		held.Store(false)
		time.Sleep(time.Minute)
		b.run(enqueue(t, b.l, "a", "playbook")) // wakes the dispatcher, as any commit does

		for _, id := range []int64{prompts[0], prompts[len(prompts)-1]} {
			if r := b.run(id); r.Outcome != domain.OutcomeSuccess {
				t.Errorf("blocked before: %+v", r)
			}
		}
	})
}

// TestStartDeadlineInALongQueue checks that the first run within its deadline starts, although the
// runs in front of it are late.
func TestStartDeadlineInALongQueue(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.e.policy = func(string) dispatch.Policy { return dispatch.Policy{StartDeadline: time.Minute} }
		late := fill(t, b.l, 100, one("a", "j"))
		time.Sleep(2 * time.Minute)
		fresh := enqueue(t, b.l, "a", "j")
		b.start(func(context.Context, ledger.Run, ledger.Attempt) (ledger.Result, error) { return success, nil })
		if r := b.run(fresh); r.Outcome != domain.OutcomeSuccess {
			t.Errorf("the fresh one: %+v", r)
		}

		skipped, err := b.l.Runs.List(t.Context(), runs.Filter{Outcome: domain.OutcomeSkipped, Limit: 1000})
		if err != nil || len(skipped) != len(late) {
			t.Errorf("%d of %d were skipped (%v)", len(skipped), len(late), err)
		}
	})
}

// TestRescued checks that the first pass of a dispatcher waits for the rescue, and that Rescued is
// closed afterwards.
func TestRescued(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		id := enqueue(t, b.l, "a", "j")
		if _, _, err := b.l.StartAttempt(t.Context(), id); err != nil {
			t.Fatal(err)
		}

		b.e.blocked = func(ledger.Run) string { return "not yet" }
		d := b.start(func(context.Context, ledger.Run, ledger.Attempt) (ledger.Result, error) { return success, nil })
		<-d.Rescued()
		if running, err := b.l.Runs.Running(t.Context()); err != nil || len(running) != 0 {
			t.Errorf("still running: %+v (%v)", running, err)
		}
	})
}

// BenchmarkNoop measures the time from the request of a run to its end, without any work.
func BenchmarkNoop(b *testing.B) {
	l := open(b, filepath.Join(b.TempDir(), "ledger.db"))
	ended := make(chan struct{}, 1<<20)
	stop := serve(b, l, ended, 64)
	sent := 0
	for b.Loop() {
		if sent++; sent%512 == 0 {
			fill(b, l, 512, one("a", "j"))
		}
	}

	sent -= sent % 512
	for range sent {
		<-ended
	}

	b.ReportMetric(float64(sent)/b.Elapsed().Seconds(), "runs/s")
	stop()
}

// BenchmarkOneJob measures a queue of ten thousand runs that wait for one lane.
func BenchmarkOneJob(b *testing.B) {
	const total = 10_000
	for b.Loop() {
		b.StopTimer()
		l := open(b, filepath.Join(b.TempDir(), "ledger.db"))
		fill(b, l, total, one("a", "j"))
		ended := make(chan struct{}, total)
		b.StartTimer()
		stop := serve(b, l, ended, 1)
		for range total {
			<-ended
		}

		stop()
	}

	b.ReportMetric(total*float64(b.N)/b.Elapsed().Seconds(), "runs/s")
}

// BenchmarkStart measures the time from the request of a single run to its start.
func BenchmarkStart(b *testing.B) {
	l := open(b, filepath.Join(b.TempDir(), "ledger.db"))
	ended := make(chan struct{}, 1)
	stop := serve(b, l, ended, 4)

	for b.Loop() {
		fill(b, l, 1, one("a", "j"))
		<-ended
	}

	stop()
}

// serve dispatches runs that only report their execution.
func serve(b *testing.B, l *ledger.Ledger, ended chan<- struct{}, lanes int) (stop func()) {
	d, err := dispatch.New(dispatch.Options{Ledger: l, Runs: lanes, RunsPerAgent: lanes, Executor: &executor{
		policy: func(string) dispatch.Policy { return dispatch.Policy{Concurrency: lanes} },
		ExecutorFunc: func(context.Context, ledger.Run, ledger.Attempt) (ledger.Result, error) {
			ended <- struct{}{}
			return success, nil
		},
	}})
	if err != nil {
		b.Fatal(err)
	}

	ctx, cancel := context.WithCancel(b.Context())
	over := make(chan error, 1)
	go func() { over <- d.Run(ctx) }()
	return func() {
		cancel()
		if err := <-over; err != nil {
			b.Error(err)
		}
		l.Close()
	}
}

// TestFairQueueInOrder checks that a run that returns to its queue goes in front of younger runs.
func TestFairQueueInOrder(t *testing.T) {
	k := dispatch.NewFairQueue(9, 9, func(string) dispatch.Policy { return dispatch.Policy{Concurrency: -1} })
	for _, r := range []ledger.Run{{ID: 5, Job: "a"}, {ID: 9, Job: "a"}, {ID: 4, Job: "b"}, {ID: 7, Job: "a"}, {ID: 3, Job: "a"}} {
		r.Agent, r.State = "agent", domain.StateQueued
		k.Add(r)
	}

	if got, _ := k.Dequeue(time.Now(), nil); !slices.Equal(ids(got), []int64{3, 4, 5, 7, 9}) {
		t.Errorf("chosen: %v", got)
	}
}

func ids(total []node.RunFor) (all []int64) {
	for _, r := range total {
		all = append(all, r.Run)
	}
	return all
}

// TestBackfillYields checks that the runs of a backfill wait behind all other runs, including later
// ones and those of other agents. They have no deadline, and a pause holds them.
func TestBackfillYields(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	k := dispatch.NewFairQueue(1, 1, func(string) dispatch.Policy { return dispatch.Policy{StartDeadline: time.Minute} })
	for _, r := range []ledger.Run{{ID: 1, Agent: "a", Job: "j"}, {ID: 2, Agent: "b", Job: "k"}, {ID: 3, Agent: "a", Job: "j"}} {
		r.State, r.Trigger, r.QueuedAt = domain.StateQueued, domain.TriggerBackfill, now.Add(-time.Hour)
		k.Add(r)
	}
	for _, r := range []ledger.Run{{ID: 4, Agent: "a", Job: "j"}, {ID: 5, Agent: "b", Job: "k", Trigger: domain.TriggerManual}, {ID: 6, Agent: "a", Job: "other"}} {
		r.State, r.QueuedAt = domain.StateQueued, now
		k.Add(r)
	}

	var order []int64
	for range 6 {
		starting, late := k.Dequeue(now, nil)
		if len(late) > 0 {
			t.Errorf("late: %v", late)
		}
		order = append(order, ids(starting)...)
		k.Release(ids(starting)...)
	}
	if !slices.Equal(order, []int64{4, 5, 6, 1, 2, 3}) {
		t.Errorf("order: %v", order)
	}

	k.Add(ledger.Run{ID: 7, Agent: "a", Job: "j", State: domain.StateQueued, Trigger: domain.TriggerBackfill})
	if starting, _ := k.Dequeue(now, []pause.Pause{{Scope: pause.Job, Name: "j", Since: now.Add(-time.Hour)}}); len(starting) != 0 {
		t.Errorf("started in a pause: %v", starting)
	}
}

// TestLateBehindOthers checks that a late run leaves its queue at once, even if runs without an
// expired deadline are in front of it: retries have no deadline, and held runs have a later one.
func TestLateBehindOthers(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	since := func(minutes int) time.Time { return now.Add(time.Duration(-minutes) * time.Minute) }
	k := dispatch.NewFairQueue(1, 1, func(string) dispatch.Policy { return dispatch.Policy{StartDeadline: 10 * time.Minute} })
	for _, r := range []ledger.Run{
		{ID: 1, State: domain.StateWaiting, Attempt: 1, QueuedAt: since(60)},
		{ID: 2, State: domain.StateQueued, QueuedAt: since(60), NotBefore: since(5)},
		{ID: 3, State: domain.StateQueued, QueuedAt: since(20)},
		{ID: 4, State: domain.StateWaiting, Attempt: 2, QueuedAt: since(50)},
		{ID: 5, State: domain.StateQueued, QueuedAt: since(8)},
		{ID: 6, State: domain.StateQueued, QueuedAt: since(15)},
	} {
		r.Agent, r.Job = "a", "j"
		k.Add(r)
	}

	starting, late := k.Dequeue(now, nil)
	if !slices.Equal(ids(starting), []int64{1}) || !slices.Equal(late, []dispatch.Late{{Run: 3, Waited: 20 * time.Minute}, {Run: 6, Waited: 15 * time.Minute}}) {
		t.Errorf("starting %v, late %v", starting, late)
	}
	if next := k.NextLate(); !next.Equal(since(-2).Add(time.Millisecond)) {
		t.Errorf("the next is late at %s", next)
	}

	// A run that has started and returns for another try no longer has a deadline.
	k.Release(1)
	if starting, late = k.Dequeue(since(-1), nil); !slices.Equal(ids(starting), []int64{2}) || len(late) != 0 {
		t.Errorf("starting %v, late %v", starting, late)
	}
	k.Add(ledger.Run{ID: 2, Agent: "a", Job: "j", State: domain.StateWaiting, Attempt: 1, QueuedAt: since(60)})
	if _, late = k.Dequeue(since(-100), nil); !slices.Equal(late, []dispatch.Late{{Run: 5, Waited: 108 * time.Minute}}) {
		t.Errorf("late %v", late)
	}
	if next := k.NextLate(); !next.IsZero() {
		t.Errorf("the next is late at %s", next)
	}
}
