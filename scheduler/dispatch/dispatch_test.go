package dispatch_test

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"rouse/internal/contract"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/incident"
	"rouse/internal/ledger/ledgertest"
	"rouse/scheduler/dispatch"
)

// executor is an executor with the settings that a test gives it.
type executor struct {
	dispatch.ExecutorFunc
	policy  func(job string) dispatch.Policy
	blocked func(run ledger.Run) string
	notices func(run ledger.Run, res ledger.Result) []ledger.Notice
}

func (e *executor) Policy(job string) dispatch.Policy {
	if e.policy == nil {
		return e.ExecutorFunc.Policy(job)
	}
	return e.policy(job)
}

func (e *executor) Obstacles(_ context.Context, run ledger.Run) []ledger.Obstacle {
	if e.blocked == nil || e.blocked(run) == "" {
		return nil
	}
	return []ledger.Obstacle{{Kind: "test", Source: "test/" + e.blocked(run), Text: e.blocked(run)}}
}

func (e *executor) ObstacleNotices(run ledger.Run, o ledger.Obstacle) []ledger.Notice {
	return []ledger.Notice{{Run: run.ID, Job: run.Job, Channel: "desktop", Title: o.Text}}
}

func (e *executor) QuestionNotices(run ledger.Run, res ledger.Result) []ledger.Notice {
	if e.notices == nil {
		return nil
	}
	return e.notices(run, res)
}

func (e *executor) EndNotices(run ledger.Run, res ledger.Result) *incident.EndNotices {
	out := &incident.EndNotices{}
	for _, n := range e.QuestionNotices(run, res) {
		out.Notices = append(out.Notices, incident.EndNotice{Notice: n, Every: 1})
	}
	return out
}

var success = ledger.Result{Outcome: domain.OutcomeSuccess, Exit: "final_response"}

func open(t testing.TB, path string) *ledger.Ledger {
	t.Helper()
	if err := ledgertest.Blank(path); err != nil {
		t.Fatal(err)
	}
	l, err := ledger.Open(t.Context(), ledger.Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func enqueue(t testing.TB, l *ledger.Ledger, agent, job string) int64 {
	t.Helper()
	a, err := l.Enqueue(t.Context(), ledger.Request{Job: job, Agent: agent, Trigger: domain.TriggerManual})
	if err != nil {
		t.Fatal(err)
	}
	return a[0].Run
}

// bench is a running dispatcher with its own ledger, inside a synctest bubble.
type bench struct {
	t    *testing.T
	path string
	l    *ledger.Ledger
	o    dispatch.Options
	e    executor
	stop func()
}

func inBubble(t *testing.T, test func(t *testing.T, b *bench)) {
	t.Parallel() // the tests wait for the disk most of their time
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "ledger.db")
		b := &bench{t: t, path: path, l: open(t, path), stop: func() {}}
		b.o = dispatch.Options{Ledger: b.l}
		test(t, b)
		b.stop()
		if err := b.l.Close(); err != nil {
			t.Error(err)
		}
	})
}

func (b *bench) start(execute dispatch.ExecutorFunc) *dispatch.Dispatcher {
	b.t.Helper()
	e := b.e // settings of this dispatcher, which later changes do not affect
	e.ExecutorFunc = execute
	b.o.Executor = &e
	d, err := dispatch.New(b.o)
	if err != nil {
		b.t.Fatal(err)
	}

	ctx, cancel := context.WithCancel(b.t.Context())
	over := make(chan struct{})
	go func() {
		defer close(over)
		if err := d.Run(ctx); err != nil {
			b.t.Error(err)
		}
	}()

	b.stop = func() { cancel(); <-over; b.stop = func() {} }
	return d
}

// reopen closes the ledger and opens its file again, as another process would.
func (b *bench) reopen() {
	b.t.Helper()
	if err := b.l.Close(); err != nil {
		b.t.Fatal(err)
	}
	b.l = open(b.t, b.path)
	b.o.Ledger = b.l
}

func (b *bench) run(id int64) ledger.Run {
	b.t.Helper()
	synctest.Wait()
	r, err := b.l.Runs.Get(b.t.Context(), id)
	if err != nil {
		b.t.Fatal(err)
	}
	return r
}

func TestRunsFinish(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.start(func(context.Context, ledger.Run, ledger.Attempt) (ledger.Result, error) { return success, nil })
		id := enqueue(t, b.l, "a", "j")
		if r := b.run(id); r.Outcome != domain.OutcomeSuccess || r.Attempt != 1 {
			t.Errorf("run: %+v", r)
		}
	})
}

// TestExecutorFails checks that an error or panic of an executor ends its run with the reason and
// affects no other run.
func TestExecutorFails(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.start(func(_ context.Context, r ledger.Run, _ ledger.Attempt) (ledger.Result, error) {
			switch r.Job {
			case "error":
				return ledger.Result{}, errors.New("the disk is on fire")
			case "panic":
				panic("index out of range")
			}
			return success, nil
		})

		for job, say := range map[string]string{"error": "on fire", "panic": "index out of range"} {
			if r := b.run(enqueue(t, b.l, "a", job)); r.Outcome != domain.OutcomeError || !strings.Contains(r.Error, say) {
				t.Errorf("%s: %+v", job, r)
			}
		}

		if r := b.run(enqueue(t, b.l, "a", "fine")); r.Outcome != domain.OutcomeSuccess {
			t.Errorf("the dispatcher did not live: %+v", r)
		}
	})
}

// TestLanes checks that runs beyond the lanes wait and are not refused (OSA-26).
func TestLanes(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.o.Runs, b.o.RunsPerAgent = 3, 2
		b.e.policy = func(job string) dispatch.Policy {
			if job == "wide" {
				return dispatch.Policy{Concurrency: -1}
			}
			return dispatch.Policy{}
		}

		var mu sync.Mutex
		now, most := map[string]int{}, map[string]int{}
		var order []int64
		count := func(key string, by int) {
			mu.Lock()
			defer mu.Unlock()
			now[key] += by
			most[key] = max(most[key], now[key])
		}

		for range 4 {
			enqueue(t, b.l, "a", "narrow")
			enqueue(t, b.l, "a", "wide")
			enqueue(t, b.l, "b", "wide")
		}

		b.start(func(_ context.Context, r ledger.Run, _ ledger.Attempt) (ledger.Result, error) {
			keys := []string{"all", "agent " + r.Agent, "job " + r.Job}
			for _, k := range keys {
				count(k, 1)
			}

			mu.Lock()
			order = append(order, r.ID)
			mu.Unlock()
			time.Sleep(time.Second)
			for _, k := range keys {
				count(k, -1)
			}

			return success, nil
		})

		time.Sleep(time.Minute)
		synctest.Wait()
		if len(order) != 12 {
			t.Fatalf("%d of 12 runs were started", len(order))
		}

		for key, want := range map[string]int{"all": 3, "agent a": 2, "agent b": 2, "job narrow": 1} {
			if most[key] > want || most[key] == 0 {
				t.Errorf("%s: %d at once, want at most %d", key, most[key], want)
			}
		}

		if !slices.Contains(order[:3], 1) || !slices.Contains(order[:3], 3) {
			t.Errorf("the lane of one agent held up another: %v", order)
		}
	})
}

func TestRetryWaitsAndGivesUp(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.e.policy = func(string) dispatch.Policy {
			return dispatch.Policy{Attempts: 3, Backoff: time.Minute, MaxBackoff: 90 * time.Second, On: []domain.Outcome{domain.OutcomeError}}
		}
		told := 0
		b.e.notices = func(ledger.Run, ledger.Result) []ledger.Notice { told++; return nil }
		var starts []time.Time
		b.start(func(context.Context, ledger.Run, ledger.Attempt) (ledger.Result, error) {
			starts = append(starts, time.Now())
			return ledger.Result{Outcome: domain.OutcomeError, Error: "flaky"}, nil
		})
		id := enqueue(t, b.l, "a", "j")
		if r := b.run(id); r.State != domain.StateWaiting || r.WaitingFor != domain.WaitRetry {
			t.Errorf("after the first try: %+v", r)
		}

		time.Sleep(time.Hour)
		if r := b.run(id); r.Outcome != domain.OutcomeError || r.Attempt != 3 || len(starts) != 3 {
			t.Fatalf("after an hour: %+v, %d tries", r, len(starts))
		}

		for i, most := range []time.Duration{time.Minute, 90 * time.Second} {
			if wait := starts[i+1].Sub(starts[i]); wait > most || wait < most*3/4-time.Second {
				t.Errorf("wait %d was %s, want up to a quarter less than %s", i+1, wait, most)
			}
		}

		if told != 1 {
			t.Errorf("the owner was told %d times, want once, at the end", told)
		}
	})
}

// TestRetrySurvivesARestart checks that a restart does not change the time of the next try, which
// is in the ledger.
func TestRetrySurvivesARestart(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.e.policy = func(string) dispatch.Policy {
			return dispatch.Policy{Attempts: 2, Backoff: time.Hour, MaxBackoff: time.Hour, On: []domain.Outcome{domain.OutcomeError}}
		}
		b.start(func(context.Context, ledger.Run, ledger.Attempt) (ledger.Result, error) {
			return ledger.Result{Outcome: domain.OutcomeError}, nil
		})
		id := enqueue(t, b.l, "a", "j")
		b.run(id)
		b.stop()
		b.reopen()
		b.start(func(context.Context, ledger.Run, ledger.Attempt) (ledger.Result, error) { return success, nil })
		time.Sleep(30 * time.Minute)
		if r := b.run(id); r.State != domain.StateWaiting {
			t.Errorf("half an hour later: %+v", r)
		}

		time.Sleep(31 * time.Minute)
		if r := b.run(id); r.Outcome != domain.OutcomeSuccess {
			t.Errorf("an hour later: %+v", r)
		}
	})
}

// TestCancelARunningRun cancels running runs, one at a time.
func TestCancelARunningRun(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.o.RunsPerAgent = 4
		b.e.policy = func(string) dispatch.Policy { return dispatch.Policy{Concurrency: -1} }
		causes := map[int64]error{}
		b.start(func(ctx context.Context, r ledger.Run, _ ledger.Attempt) (ledger.Result, error) {
			<-ctx.Done()
			causes[r.ID] = context.Cause(ctx) // only one is cancelled at a time
			return ledger.Result{Outcome: domain.OutcomeCancelled}, nil
		})

		ids := []int64{enqueue(t, b.l, "a", "j"), enqueue(t, b.l, "a", "j"), enqueue(t, b.l, "a", "j")}
		for _, id := range ids {
			if r := b.run(id); r.State != domain.StateRunning {
				t.Fatalf("run: %+v", r)
			}
			if _, err := b.l.RequestCancel(t.Context(), id, "enough"); err != nil {
				t.Fatal(err)
			}
			if r := b.run(id); r.Outcome != domain.OutcomeCancelled {
				t.Errorf("run: %+v", r)
			}

			var stop *dispatch.Stop
			if !errors.As(causes[id], &stop) || stop.Outcome() != "cancelled" || stop.Error() != "enough" {
				t.Errorf("cause: %v", causes[id])
			}
		}
	})
}

// TestRescue checks that attempts of a dead process become interrupted. Their run continues at most
// three times, or not at all if its job has resume: false (OSA-79).
func TestRescue(t *testing.T) {
	row := contract.Of(t, "OSA-79")
	running, interrupted, most := domain.State(row.Quote("running")), domain.Outcome(row.Quote("interrupted")), row.Number("3")
	inBubble(t, func(t *testing.T, b *bench) {
		b.e.policy = func(job string) dispatch.Policy { return dispatch.Policy{Resume: job == "resumes"} }
		resumes, stays := enqueue(t, b.l, "a", "resumes"), enqueue(t, b.l, "b", "stays")
		for _, id := range []int64{resumes, stays} {
			if _, _, err := b.l.StartAttempt(t.Context(), id); err != nil {
				t.Fatal(err)
			}
		}

		b.o.Drain = time.Nanosecond
		hang := func(ctx context.Context, _ ledger.Run, _ ledger.Attempt) (ledger.Result, error) {
			<-ctx.Done()
			return ledger.Result{Outcome: domain.OutcomeInterrupted}, nil
		}
		for attempt := 2; attempt <= most+1; attempt++ {
			b.start(hang)
			if r := b.run(resumes); r.State != running || r.Attempt != attempt || r.Interruptions != attempt-1 {
				t.Fatalf("start %d: %+v", attempt, r)
			}
			if r := b.run(stays); r.Outcome != interrupted || r.Attempt != 1 || !strings.Contains(r.Error, row.Quote("resume: false")) {
				t.Errorf("resume: false: %+v", r)
			}
			b.stop()
		}

		b.start(hang)
		if r := b.run(resumes); r.Outcome != interrupted || r.Interruptions != most+1 {
			t.Errorf("after four interruptions: %+v", r)
		}
	})
}

func TestDrainLetsRunsFinish(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.o.Drain = 10 * time.Second
		b.start(func(context.Context, ledger.Run, ledger.Attempt) (ledger.Result, error) {
			time.Sleep(5 * time.Second)
			return success, nil
		})
		first, second := enqueue(t, b.l, "a", "j"), enqueue(t, b.l, "a", "j")
		b.run(first)
		b.stop()
		if r := b.run(first); r.Outcome != domain.OutcomeSuccess {
			t.Errorf("the running one: %+v", r)
		}
		if r := b.run(second); r.State != domain.StateQueued {
			t.Errorf("the queued one: %+v", r)
		}
	})
}

func TestStartDeadline(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.e.policy = func(string) dispatch.Policy { return dispatch.Policy{StartDeadline: time.Minute} }
		late := enqueue(t, b.l, "a", "j")
		time.Sleep(2 * time.Minute)
		b.start(func(context.Context, ledger.Run, ledger.Attempt) (ledger.Result, error) { return success, nil })
		r := b.run(late)
		if r.Outcome != domain.OutcomeSkipped || !strings.Contains(r.Error, "start_deadline") {
			t.Errorf("run: %+v", r)
		}

		// The run did not start, so it has no attempt.
		attempts, err := b.l.Runs.Attempts(t.Context(), late)
		if err != nil || len(attempts) != 0 || r.Attempt != 0 || !r.StartedAt.IsZero() || r.FinishedAt.IsZero() {
			t.Errorf("run: %+v, attempts: %+v (%v)", r, attempts, err)
		}
	})
}

func TestBlocked(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		held := true
		b.e.blocked = func(r ledger.Run) string {
			if held && r.Job == "prompt" {
				return "no_model"
			}
			return ""
		}

		b.start(func(context.Context, ledger.Run, ledger.Attempt) (ledger.Result, error) { return success, nil })
		prompt, playbook := enqueue(t, b.l, "a", "prompt"), enqueue(t, b.l, "a", "playbook")
		if r := b.run(playbook); r.Outcome != domain.OutcomeSuccess {
			t.Errorf("a held run held up another: %+v", r)
		}
		if r := b.run(prompt); r.State != domain.StateQueued {
			t.Errorf("run: %+v", r)
		}
	})
}

// TestReconsider checks that changed settings apply to a running dispatcher. A held run starts,
// regardless of the length of the queue, and the new number of lanes is used.
func TestReconsider(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		var held atomic.Bool
		held.Store(true)
		b.e.blocked = func(r ledger.Run) string {
			if held.Load() {
				return "no_model"
			}
			return ""
		}

		b.o.Runs, b.o.RunsPerAgent = 1, 1
		b.e.policy = func(string) dispatch.Policy { return dispatch.Policy{Concurrency: -1} }
		on, end := atomic.Int32{}, make(chan struct{})
		d := b.start(func(context.Context, ledger.Run, ledger.Attempt) (ledger.Result, error) {
			on.Add(1)
			<-end
			return success, nil
		})

		for range 200 {
			enqueue(t, b.l, "a", "j")
		}

		synctest.Wait()
		if n := on.Load(); n != 0 {
			t.Errorf("%d run though they are held", n)
		}

		held.Store(false)
		d.Reconsider()
		time.Sleep(time.Second) // a deep queue is read only at intervals
		synctest.Wait()
		if n := on.Load(); n != 1 {
			t.Errorf("%d run in one lane", n)
		}

		d.SetLanes(3, 3)
		synctest.Wait()
		if n := on.Load(); n != 3 {
			t.Errorf("%d run in three lanes", n)
		}

		d.SetDrain(time.Nanosecond)
		close(end)
	})
}

func TestOnlyServesOneRun(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		other, mine := enqueue(t, b.l, "a", "j"), enqueue(t, b.l, "a", "j")
		b.o.Only = mine
		b.o.Executor = dispatch.ExecutorFunc(func(context.Context, ledger.Run, ledger.Attempt) (ledger.Result, error) { return success, nil })
		d, err := dispatch.New(b.o)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if r := b.run(mine); r.Outcome != domain.OutcomeSuccess {
			t.Errorf("run: %+v", r)
		}

		if r := b.run(other); r.State != domain.StateQueued {
			t.Errorf("the other: %+v", r)
		}
	})
}
