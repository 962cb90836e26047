package scheduler_test

import (
	"container/heap"
	"fmt"
	"testing"
	"time"

	"github.com/robfig/cron/v3"

	"rouse/internal/domain"
	"rouse/scheduler"
	"rouse/scheduler/schedule"
)

// BenchmarkWake iterates over the instants of daily schedules that are spread over the day. One
// operation is a wakeup, which returns the due jobs and computes their next instants. Compare
// "timetable" with "heap", which uses container/heap and robfig/cron.
func BenchmarkWake(b *testing.B) {
	for _, n := range []int{10_000, 100_000} {
		now := time.Now().UTC().Truncate(24 * time.Hour)
		crons := make([]string, n)
		for i := range crons {
			minute := i * 1440 / n
			crons[i] = fmt.Sprintf("%d %d * * *", minute%60, minute/60)
		}

		b.Run(fmt.Sprintf("timetable/%d", n), func(b *testing.B) {
			t := scheduler.NewTimetable()
			for i, c := range crons {
				s, err := schedule.Parse(schedule.Options{Cron: c, Timezone: "UTC", Job: fmt.Sprint("job", i)})
				if err != nil {
					b.Fatal(err)
				}
				t.Put(scheduler.Job{Name: fmt.Sprint("job", i), Agent: "a", Schedules: []*schedule.Schedule{s}, Overlap: domain.OverlapSkip}, now, now)
			}
			fired := 0
			for b.Loop() {
				due := t.PopDue(t.Head(), scheduler.DueContext{})
				fired += len(due.Due)
				t.Advance(due)
			}
			b.ReportMetric(float64(fired)/float64(b.N), "jobs/wake")
		})

		b.Run(fmt.Sprintf("heap/%d", n), func(b *testing.B) {
			var h plainHeap
			for i, c := range crons {
				s, err := cron.ParseStandard("CRON_TZ=UTC " + c)
				if err != nil {
					b.Fatal(err)
				}
				heap.Push(&h, &plainJob{fmt.Sprint("job", i), s, s.Next(now)})
			}
			fired := 0
			for b.Loop() {
				for at := h[0].next; !h[0].next.After(at); fired++ {
					h[0].next = h[0].schedule.Next(at)
					heap.Fix(&h, 0)
				}
			}
			b.ReportMetric(float64(fired)/float64(b.N), "jobs/wake")
		})
	}
}

type plainJob struct {
	name     string
	schedule cron.Schedule
	next     time.Time
}

// plainHeap orders jobs by their next instants.
type plainHeap []*plainJob

func (h plainHeap) Len() int           { return len(h) }
func (h plainHeap) Less(i, j int) bool { return h[i].next.Before(h[j].next) }
func (h plainHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *plainHeap) Push(x any)        { *h = append(*h, x.(*plainJob)) }
func (h *plainHeap) Pop() any          { panic("no job ends") }
