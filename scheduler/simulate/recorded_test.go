package simulate_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/pause"
	"rouse/internal/ledger/wake"
	"rouse/scheduler"
	"rouse/scheduler/dispatch"
	"rouse/scheduler/schedule"
	"rouse/scheduler/simulate"
)

// runtimes are the runtimes of the recorded jobs. They are chosen so that no run ends just when
// another is due.
var runtimes = map[string]time.Duration{
	"five": 7*time.Minute + 13*time.Second, "hourly": 83*time.Minute + 7*time.Second, "catch": 11*time.Second + 300*time.Millisecond,
	"replace": 4*time.Minute + 41*time.Second, "allow": 9*time.Minute + 31*time.Second, "late": 25*time.Minute + 3*time.Second, "start": 17 * time.Second,
	"all": 22*time.Minute + 59*time.Second,
}

func runtimeOf(job, _ string) time.Duration { return runtimes[job] }

func policyOf(job string) dispatch.Policy {
	switch job {
	case "allow":
		return dispatch.Policy{Resume: true, Concurrency: -1}
	case "late":
		return dispatch.Policy{Resume: true, StartDeadline: 20 * time.Minute}
	case "catch":
		return dispatch.Policy{}
	}
	return dispatch.Policy{Resume: true}
}

// recordedJobs returns jobs that cover every policy. Jobs of a day with clock steps have no jitter
// or deadline. The simulation does not model the delay after which the dispatcher checks those.
func recordedJobs(t *testing.T, stepped bool) []scheduler.Job {
	set := func(agent string, overlap domain.Overlap, j scheduler.Job) scheduler.Job {
		j.Agent, j.Overlap = agent, overlap
		return j
	}
	catch := set("b", "skip", job(t, "catch", schedule.Options{Every: "3m"}))
	catch.Policy = schedule.Policy{OnMiss: domain.MissCatchup, MaxCatchup: 7, CatchupWindow: time.Hour}
	never := set("b", "cancel_previous", job(t, "replace", schedule.Options{Cron: "*/3 7-19 * * *", Timezone: "Asia/Kathmandu"}))
	never.Policy.OnMiss = domain.MissSkip
	start := set("c", "queue_one", job(t, "start", schedule.Options{Cron: "@daily"}))
	start.RunOnStart = true
	jobs := []scheduler.Job{catch, never, start,
		set("a", "queue_one", job(t, "hourly", schedule.Options{Cron: "0 * * * *"})),
		set("c", "allow", job(t, "allow", schedule.Options{Cron: "17 */2 * * *"})),
		set("c", "queue_all", job(t, "all", schedule.Options{Cron: "30 * * * *"})),
	}
	if stepped {
		return append(jobs, set("a", "skip", job(t, "five", schedule.Options{Cron: "*/5 * * * *"})))
	}

	return append(jobs, set("a", "skip", job(t, "five", schedule.Options{Cron: "*/5 * * * *", Jitter: 90 * time.Second})),
		set("c", "queue_all", job(t, "late", schedule.Options{Cron: "*/15 * * * *"})))
}

// recording is a day of a real daemon with scheduler, dispatcher and ledger. Its clock can be set.
type recording struct {
	dispatch.ExecutorFunc // for the other methods

	t    *testing.T
	l    *ledger.Ledger
	jobs []scheduler.Job

	mu     sync.Mutex
	offset time.Duration           // of the wall clock
	left   map[int64]time.Duration // remaining runtime of interrupted runs
}

func (r *recording) now() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Now().Add(r.offset)
}

func (r *recording) step(by time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.offset += by
}

func (*recording) Policy(job string) dispatch.Policy { return policyOf(job) }

func (r *recording) Freeze() func(context.Context, ledger.Run, ledger.Attempt) (ledger.Result, error) {
	return r.execute
}

// execute waits for the runtime of the run's job.
func (r *recording) execute(ctx context.Context, run ledger.Run, _ ledger.Attempt) (ledger.Result, error) {
	r.mu.Lock()
	left, ok := r.left[run.ID]
	if !ok {
		left = runtimeOf(run.Job, run.Agent)
	}

	r.mu.Unlock()
	begin := time.Now()
	select {
	case <-time.After(left):
		return ledger.Result{Outcome: domain.OutcomeSuccess}, nil
	case <-ctx.Done():
		r.mu.Lock()
		defer r.mu.Unlock()
		r.left[run.ID] = left - time.Since(begin)
		return ledger.Result{Outcome: domain.OutcomeCancelled}, nil
	}
}

// daemon starts a daemon. The returned function stops it.
func (r *recording) daemon() (stop func()) {
	r.t.Helper()
	s, err := scheduler.New(scheduler.Options{Ledger: r.l, Lanes: 3, Now: r.now})
	if err != nil {
		r.t.Fatal(err)
	}
	if err := s.Set(r.t.Context(), r.jobs, []string{"a"}); err != nil {
		r.t.Fatal(err)
	}

	d, err := dispatch.New(dispatch.Options{Ledger: r.l, Executor: r, Runs: 3, RunsPerAgent: 2, Drain: time.Nanosecond, After: s.Ready(), Now: r.now})
	if err != nil {
		r.t.Fatal(err)
	}

	ctx, cancel := context.WithCancel(r.t.Context())
	var all sync.WaitGroup
	all.Go(func() {
		if err := d.Run(ctx); err != nil {
			r.t.Error(err)
		}
	})

	all.Go(func() {
		<-d.Rescued()
		if err := s.Run(ctx); err != nil {
			r.t.Error(err)
		}
	})

	synctest.Wait()
	return func() { cancel(); all.Wait() }
}

// TestMain allows many parallel tests, because they wait for the disk.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", strconv.Itoa(4*runtime.GOMAXPROCS(0))); err != nil {
		os.Exit(2)
	}

	os.Exit(m.Run())
}

// The simulation of a recorded day makes the same decisions as the daemon, with the same texts. The
// days have outages, a planned wake, and pauses or clock steps. ROUSE_TEST_DAYS is the number of
// days.
func TestRecordedDay(t *testing.T) {
	t.Parallel()
	days, err := days, error(nil)
	if text := os.Getenv("ROUSE_TEST_DAYS"); text != "" {
		if days, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	for seed := range uint64(days) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "ledger.db")
			synctest.Test(t, func(t *testing.T) { record(t, path, rand.New(rand.NewPCG(seed, 1)), seed%2 == 1) })
		})
	}
}

func record(t *testing.T, path string, random *rand.Rand, stepped bool) {
	r := &recording{t: t, jobs: recordedJobs(t, stepped), left: map[int64]time.Duration{}}
	l, err := ledger.Open(t.Context(), ledger.Options{Path: path, Now: r.now})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()

	r.l = l
	o := simulate.Options{Jobs: r.jobs, From: r.now(), Policy: policyOf, Runtime: runtimeOf, Runs: 3, RunsPerAgent: 2}
	stop := r.daemon()
	slot := wake.Wake{Agent: "a", At: r.now().Add(5*time.Hour + 7*time.Second), OnMiss: domain.MissRunOnce, ScheduledBy: ledger.ByAgent, Priority: "normal"}
	if slot, err = l.Wakes.Set(t.Context(), slot, wake.Usage{}); err != nil {
		t.Fatal(err)
	}

	o.Wakes = []wake.Wake{slot}
	wait := func(most time.Duration) {
		time.Sleep(time.Duration(random.Int64N(int64(most))).Round(time.Millisecond) + time.Minute)
	}
	for i := range 9 {
		wait(3 * time.Hour)
		switch {
		case i%3 == 0:
			from := r.now()
			stop()
			wait(2 * time.Hour)
			o.Events = append(o.Events, outage(from, r.now())...)
			stop = r.daemon()
		case stepped:
			by := time.Duration(random.Int64N(int64(3*time.Hour))).Round(time.Millisecond) - time.Hour
			o.Events = append(o.Events, simulate.Event{At: r.now(), Kind: simulate.Step, By: by})
			r.step(by)
		default:
			if _, err := l.Pauses.Set(t.Context(), pause.Pause{Scope: pause.Agent, Name: "b", Until: r.now().Add(50 * time.Minute), By: ledger.ByUser}); err != nil {
				t.Fatal(err)
			}
		}
	}

	wait(time.Hour)
	stop()
	o.To = r.now()
	if o.Pauses, err = l.Pauses.List(t.Context(), time.Time{}); err != nil {
		t.Fatal(err)
	}

	rows, err := l.Occurrences.List(t.Context(), "", time.Time{}, o.To.Add(1000*time.Hour), 100_000)
	if err != nil {
		t.Fatal(err)
	}

	var real, simulated []string
	for _, row := range rows {
		real = append(real, fmt.Sprint(row.Nominal.UnixMilli(), " ", row.Nominal.Format("15:04:05 "), row.Job, " ", row.Source, " ", row.Decision, " run ", row.Run, ": ", row.Reason))
	}

	for _, row := range play(t, o) {
		if row.Source != scheduler.SourceWake {
			simulated = append(simulated, fmt.Sprint(row.Nominal.UnixMilli(), " ", row.Nominal.Format("15:04:05 "), row.Job, " ", row.Source, " ", row.Decision, " run ", row.Run, ": ", row.Reason))
		}
	}

	slices.Sort(real)
	slices.Sort(simulated)
	if len(real) < 500 {
		t.Errorf("a day of %d occurrences shows little", len(real))
	}

	differ := 0
	for _, line := range real {
		if _, same := slices.BinarySearch(simulated, line); !same && differ < 10 {
			differ++
			t.Errorf("recorded:  %s", line)
		}
	}

	for _, line := range simulated {
		if _, same := slices.BinarySearch(real, line); !same && differ < 20 {
			differ++
			t.Errorf("simulated: %s", line)
		}
	}
}
