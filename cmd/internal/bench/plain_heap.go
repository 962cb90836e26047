package bench

import (
	"container/heap"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/robfig/cron/v3"

	"rouse/internal/domain"
	"rouse/scheduler"
	"rouse/scheduler/schedule"
)

// clockwork fires schedules: the timetable, or what it is measured against.
type clockwork interface {
	// parse reads schedules; put adds one of them while others run, as of a time; forget
	// drops all that adding them does not keep.
	parse(specs []benchSpec) error
	put(i int, now time.Time)
	forget()
	head() time.Time
	// wake hands over what is due, and arms it for its next instant.
	wake(now time.Time, hand func(name string))
}

// timetable is the scheduler's own timetable.
type timetable struct {
	*scheduler.Timetable
	jobs []scheduler.Job
}

func newTimetable() *timetable { return &timetable{Timetable: scheduler.NewTimetable()} }

func (t *timetable) parse(specs []benchSpec) error {
	t.jobs = make([]scheduler.Job, len(specs))
	for i, spec := range specs {
		s, err := schedule.Parse(schedule.Options{Cron: spec.cron, Timezone: spec.zone, Job: spec.name})
		if err != nil {
			return err
		}
		t.jobs[i] = scheduler.Job{Name: spec.name, Agent: "agent", Schedules: []*schedule.Schedule{s}, Overlap: domain.OverlapSkip}
	}

	return nil
}

func (t *timetable) put(i int, now time.Time) { t.Put(t.jobs[i], now, now) }
func (t *timetable) forget()                  { t.jobs = nil }
func (t *timetable) head() time.Time          { return t.Head() }

func (t *timetable) wake(now time.Time, hand func(string)) {
	b := t.PopDue(now, scheduler.DueContext{})
	for i := range b.Due {
		hand(b.Due[i].Job)
	}
	t.Advance(b)
}

// plainHeap is a container/heap of schedules by their next instants, and nothing else: it
// knows no watermarks, decides nothing, and cannot find a schedule by its name.
type plainHeap struct {
	read    func(benchSpec) (cron.Schedule, error)
	parsed  []plainEntry
	entries plainEntries
}

type plainEntry struct {
	name     string
	schedule cron.Schedule
	next     time.Time
}

// newPlainHeap evaluates schedules as robfig/cron does, which loses and doubles instants
// when clocks change.
func newPlainHeap() *plainHeap { return &plainHeap{read: robfigReader()} }

// newOwnHeap asks our own schedules for their next instants.
func newOwnHeap() *plainHeap {
	return &plainHeap{read: func(s benchSpec) (cron.Schedule, error) {
		return schedule.Parse(schedule.Options{Cron: s.cron, Timezone: s.zone})
	}}
}

// robfigReader parses for robfig/cron; one zone is loaded once, unlike by CRON_TZ.
func robfigReader() func(benchSpec) (cron.Schedule, error) {
	parser := cron.NewParser(cron.SecondOptional | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow)
	zones := map[string]*time.Location{}
	return func(s benchSpec) (cron.Schedule, error) {
		if zones[s.zone] == nil {
			zone, err := time.LoadLocation(s.zone)
			if err != nil {
				return nil, err
			}
			zones[s.zone] = zone
		}

		parsed, err := parser.Parse(s.cron)
		if spec, ok := parsed.(*cron.SpecSchedule); ok {
			spec.Location = zones[s.zone]
		}

		return parsed, err
	}
}

func (h *plainHeap) parse(specs []benchSpec) error {
	h.parsed = make([]plainEntry, len(specs))
	for i, spec := range specs {
		s, err := h.read(spec)
		if err != nil {
			return err
		}
		h.parsed[i] = plainEntry{name: spec.name, schedule: s}
	}

	return nil
}

func (h *plainHeap) put(i int, now time.Time) {
	e := h.parsed[i]
	e.next = e.schedule.Next(now)
	heap.Push(&h.entries, &e)
}

func (h *plainHeap) forget()         { h.parsed = nil }
func (h *plainHeap) head() time.Time { return h.entries[0].next }

func (h *plainHeap) wake(now time.Time, hand func(string)) {
	for !h.entries[0].next.After(now) {
		e := heap.Pop(&h.entries).(*plainEntry)
		hand(e.name)
		e.next = e.schedule.Next(now)
		heap.Push(&h.entries, e)
	}
}

type plainEntries []*plainEntry

func (p plainEntries) Len() int           { return len(p) }
func (p plainEntries) Less(i, j int) bool { return p[i].next.Before(p[j].next) }
func (p plainEntries) Swap(i, j int)      { p[i], p[j] = p[j], p[i] }

// Push implements heap.Interface.
func (p *plainEntries) Push(x any) { *p = append(*p, x.(*plainEntry)) }

// Pop implements heap.Interface.
func (p *plainEntries) Pop() any {
	old := *p
	e := old[len(old)-1]
	old[len(old)-1] = nil
	*p = old[:len(old)-1]
	return e
}

// measureRobfig is what robfig/cron itself costs: its clock cannot be turned, so an entry
// of each second lets it wake.
func measureRobfig(ctx context.Context, progress io.Writer, sizes scheduleSizes) ([]Figure, error) {
	of := fmt.Sprintf(" of robfig/cron itself, %s schedules", thousands(sizes.many))
	fmt.Fprintf(progress, "wakes and adds%s\n", of)
	clock := cron.New(cron.WithLocation(time.UTC), cron.WithSeconds())
	read, specs := robfigReader(), dailySpecs(sizes.many)
	add := func(spec benchSpec) error {
		s, err := read(spec)
		if err == nil {
			clock.Schedule(s, cron.FuncJob(func() {}))
		}
		return err
	}

	for _, spec := range specs {
		if err := add(spec); err != nil {
			return nil, err
		}
	}

	woke := make(chan struct{}, 1)
	tell := func() {
		select {
		case woke <- struct{}{}:
		default:
		}
	}
	if _, err := clock.AddFunc("* * * * * *", tell); err != nil {
		return nil, err
	}

	clock.Start()
	defer clock.Stop()

	var spent time.Duration
	for n := range sizes.wakes + 1 {
		select {
		case <-woke:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if n == 0 { // it has just computed the next instant of every entry
			spent = cpuTime()
		}
	}

	wake := micros(cpuTime()-spent) / float64(sizes.wakes)
	const adds = 100
	spent = cpuTime()

	for range adds {
		if err := add(specs[0]); err != nil {
			return nil, err
		}
	}

	return []Figure{
		{"wake" + of, wake, 0, "µs CPU", 0, "", true},
		{"live add" + of, micros(cpuTime()-spent) / adds, 0, "µs CPU", 0, "", true},
	}, nil
}
