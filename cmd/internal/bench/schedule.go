package bench

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"time"

	"rouse/agentdb/ledger"
	"rouse/scheduler"
)

// scheduleSizes are how many schedules are measured with.
type scheduleSizes struct {
	all   []int // each of them walks through its days
	many  int   // of which due come due at once
	due   int
	ready time.Duration // how long arming many may take
	wakes int           // of robfig/cron, which are a second apart
}

func benchSchedule(ctx context.Context, o Options) ([]Figure, error) {
	sizes := scheduleSizes{all: []int{1000, 10_000, 100_000}, many: 100_000, due: 10_000, ready: 4 * time.Second, wakes: 5}
	return measureSchedule(ctx, o.Progress, o.Passes, sizes)
}

// measureSchedule alternates between the timetable and two plain heaps: one evaluates
// schedules as robfig/cron does, and one has our own evaluation, so that nothing but what
// the timetable does beside it is compared.
func measureSchedule(ctx context.Context, progress io.Writer, passes int, sizes scheduleSizes) ([]Figure, error) {
	var out []Figure
	for _, n := range sizes.all {
		specs := dailySpecs(n)
		var own, plain, table costs
		for pass := range passes {
			fmt.Fprintf(progress, "%s schedules, pass %d of %d\n", thousands(n), pass+1, passes)
			for _, c := range []struct {
				costs *costs
				clock clockwork
			}{{&plain, newPlainHeap()}, {&table, newTimetable()}, {&own, newOwnHeap()}} {
				if err := c.costs.measure(c.clock, specs); err != nil {
					return nil, err
				}
			}
		}

		out = append(out, compareCosts(n, &table, &plain, &own)...)
	}

	atOnce, err := measureBurst(ctx, progress, passes, sizes)
	if err != nil {
		return nil, err
	}

	peer, err := measureRobfig(ctx, progress, sizes)
	return append(append(out, atOnce...), peer...), err
}

// costs are what each pass found.
type costs struct{ wake, add, memory []float64 }

func compareCosts(n int, table, plain, own *costs) []Figure {
	of := fmt.Sprintf(", %s schedules", thousands(n))
	return []Figure{
		against("wake"+of, "µs CPU", "heap", 1.5, table.wake, plain.wake),
		against("wake"+of, "µs CPU", "own heap", 1.5, table.wake, own.wake),
		against("live add"+of, "µs CPU", "heap", 2, table.add, plain.add),
		against("live add"+of, "µs CPU", "own heap", 2, table.add, own.add),
		against("memory of one"+of, "bytes", "heap", 2, table.memory, plain.memory),
	}
}

// against compares with a baseline: the values may be at most so many times as large.
func against(name, unit, baseline string, most float64, values, baselines []float64) Figure {
	r := median(ratios(values, baselines))
	return Figure{name, median(values), median(baselines), unit, r, fmt.Sprintf("≤ %g× %s", most, baseline), r <= most}
}

func thousands(n int) string {
	if n < 1000 {
		return strconv.Itoa(n)
	}
	return fmt.Sprintf("%s,%03d", thousands(n/1000), n%1000)
}

// benchZones are where the schedules of a measurement are.
var benchZones = []string{"UTC", "Europe/Berlin", "America/New_York", "Asia/Tokyo"}

// benchSpec is a schedule as a configuration has it.
type benchSpec struct{ name, cron, zone string }

// dailySpecs are n daily schedules, spread over the minutes of the day and over zones.
func dailySpecs(n int) []benchSpec {
	specs := make([]benchSpec, n)
	for i := range specs {
		minute := i * 1440 / n
		specs[i] = benchSpec{fmt.Sprint("job", i), fmt.Sprintf("%d %d * * *", minute%60, minute/60), benchZones[i%len(benchZones)]}
	}
	return specs
}

// measure adds the schedules one by one, weighs them, and walks through days with them.
func (c *costs) measure(clock clockwork, specs []benchSpec) error {
	begin := time.Now().UTC().Truncate(24 * time.Hour)
	before := liveBytes()
	if err := clock.parse(specs); err != nil {
		return err
	}

	// As in the loop: no garbage of the parsing in the figure.
	runtime.GC()
	spent := cpuTime()
	for i := range specs {
		clock.put(i, begin)
	}

	c.add = append(c.add, micros(cpuTime()-spent)/float64(len(specs)))
	clock.forget()
	c.memory = append(c.memory, float64(liveBytes()-before)/float64(len(specs)))
	end := begin.Add(24 * time.Hour * time.Duration(min(10, 1+100_000/len(specs))))
	fired, wakes := 0, 0
	count := func(string) { fired++ }
	spent = cpuTime()

	for now := clock.head(); now.Before(end); now = clock.head() {
		clock.wake(now, count)
		wakes++
	}

	c.wake = append(c.wake, micros(cpuTime()-spent)/float64(wakes))
	// A clock that lost schedules would look fast. One day of slack for the edges.
	if days := int(end.Sub(begin) / (24 * time.Hour)); fired < (days-1)*len(specs) {
		return fmt.Errorf("%d schedules fired %d times in %d days", len(specs), fired, days)
	}

	runtime.KeepAlive(clock)
	return nil
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// liveBytes is the size of what is reachable.
func liveBytes() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // what finalizers held until the first
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// measureBurst is about many schedules that come due at the same instant: how late the
// last of them are handed over.
func measureBurst(ctx context.Context, progress io.Writer, passes int, sizes scheduleSizes) ([]Figure, error) {
	var table, plain, own, stored []float64
	name := fmt.Sprintf("%s of %s due at once", thousands(sizes.due), thousands(sizes.many))
	for pass := range passes {
		fmt.Fprintf(progress, "%s, pass %d of %d\n", name, pass+1, passes)
		for _, c := range []struct {
			late  *[]float64
			clock clockwork
		}{{&plain, newPlainHeap()}, {&table, newTimetable()}, {&own, newOwnHeap()}} {
			late, err := burst(c.clock, sizes)
			if err != nil {
				return nil, err
			}
			*c.late = append(*c.late, late)
		}

		late, err := burstStored(ctx, sizes)
		if err != nil {
			return nil, err
		}

		stored = append(stored, late)
	}

	return []Figure{
		against(name, "ms late, p99", "heap", 2, table, plain),
		against(name, "ms late, p99", "own heap", 2, table, own),
		{name + ", durably queued", median(stored), 0, "ms late, p99", 0, "", true},
	}, nil
}

// burstSpecs are schedules spread over the day, and at the end those that are due at once.
func burstSpecs(sizes scheduleSizes, at time.Time) []benchSpec {
	specs := dailySpecs(sizes.many)
	for i := sizes.many - sizes.due; i < sizes.many; i++ {
		specs[i].cron, specs[i].zone = at.UTC().Format("5 4 15 * * *"), "UTC"
	}
	return specs
}

// burst waits for an instant, and says how many milliseconds late the last hundredth is.
func burst(clock clockwork, sizes scheduleSizes) (float64, error) {
	at := time.Now().Add(sizes.ready).Truncate(time.Second)
	specs := burstSpecs(sizes, at)
	if err := clock.parse(specs); err != nil {
		return 0, err
	}

	now := at.Add(-time.Nanosecond) // whatever else comes due until then is of no interest
	for i := range specs {
		clock.put(i, now)
	}

	clock.forget()
	runtime.GC()
	if !clock.head().Equal(at) || !time.Now().Before(at) {
		return 0, fmt.Errorf("%s schedules were not ready within %s", thousands(sizes.many), sizes.ready)
	}

	late := make([]float64, 0, sizes.many)
	handed := func(string) { late = append(late, micros(time.Since(at))/1000) }
	time.Sleep(time.Until(at))
	clock.wake(at, handed)

	return p99(late, sizes.due)
}

func p99(late []float64, due int) (float64, error) {
	if len(late) < due {
		return 0, fmt.Errorf("%d of %d were handed over", len(late), due)
	}
	slices.Sort(late)
	return late[len(late)*99/100], nil
}

// burstStored is the same with the scheduler itself: a run is handed over when it is
// durably queued, and they all are in one transaction.
func burstStored(ctx context.Context, sizes scheduleSizes) (float64, error) {
	dir, err := os.MkdirTemp("", "rouse-bench")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)

	l, err := ledger.Open(ctx, ledger.Options{Path: filepath.Join(dir, "ledger.db")})
	if err != nil {
		return 0, err
	}
	defer l.Close()

	s, err := scheduler.New(scheduler.Options{Ledger: l})
	if err != nil {
		return 0, err
	}

	arm := func(at time.Time) error {
		t := newTimetable()
		if err := t.parse(burstSpecs(sizes, at)); err != nil {
			return err
		}
		return s.Set(ctx, t.jobs, nil)
	}

	begin := time.Now()
	if err := arm(begin.Add(24 * time.Hour)); err != nil {
		return 0, err
	}

	// How long arming takes depends on the machine, so it is tried first, for a day that is far away.
	at := time.Now().Add(2*time.Since(begin) + time.Second).Truncate(time.Second) // arming again takes no longer
	if err := arm(at); err != nil {
		return 0, err
	}

	ctx, stop := context.WithCancel(ctx)
	defer stop()

	over := make(chan error, 1)
	go func() { over <- s.Run(ctx) }()

	for queued := 0; queued < sizes.due; {
		// Taken before the count, so that a change in between is not missed.
		changed := l.Changed()
		c, err := l.Counts(ctx)
		if err != nil {
			return 0, err
		}
		if queued = c.Queued; queued >= sizes.due {
			break
		}

		select {
		case <-changed:
		case err := <-over:
			return 0, err
		}
	}

	late := micros(time.Since(at)) / 1000
	stop()
	return late, <-over
}
