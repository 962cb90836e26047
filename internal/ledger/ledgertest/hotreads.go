package ledgertest

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/runs"
)

// hotReads tests that frequent queries return the same results as a scan of all runs. The jobs
// include busy and idle ones, jobs without runs, runs without a job, and pruned runs.
func hotReads(t *testing.T, open Open) {
	l := open(t)
	var ids []int64 // all IDs ever assigned
	rapid.Check(t, func(rt *rapid.T) {
		jobs := rapid.SliceOfN(rapid.SampledFrom([]string{"busy", "busy", "busy", "busy", "a", "b", "z", ""}), 1, 4).Draw(rt, "jobs")
		for _, job := range jobs {
			id := enqueue(t, l, manual(job))[0].Run
			ids = append(ids, id)
			if rapid.Bool().Draw(rt, "ends") {
				ok(t, l.Finish(t.Context(), start(t, l, id), ledger.Result{Outcome: domain.OutcomeSuccess}))
			}
		}

		// Prune all finished runs of one job.
		if forgotten := rapid.SampledFrom([]string{"busy", "a", "z", "", "nobody's"}).Draw(rt, "forgotten"); rapid.Bool().Draw(rt, "prune") {
			must[int](t)(l.Maint.Prune(t.Context(), time.Now().Add(time.Hour), func(job string) time.Duration {
				if job == forgotten {
					return 0
				}
				return 1000 * time.Hour
			}))
			for _, r := range must[[]ledger.Run](t)(l.Runs.List(t.Context(), runs.Filter{Limit: 10_000})) {
				if r.Job == forgotten && r.State == domain.StateFinished {
					t.Errorf("run %d of %q is still there", r.ID, r.Job)
				}
			}
		}

		all, last := map[int64]ledger.Run{}, map[string]ledger.Run{}
		for _, r := range must[[]ledger.Run](t)(l.Runs.List(t.Context(), runs.Filter{Limit: 10_000})) {
			all[r.ID] = r
			if _, later := last[r.Job]; !later && r.Job != "" {
				last[r.Job] = r
			}
		}
		if got := must[map[string]ledger.Run](t)(l.Runs.Last(t.Context())); !reflect.DeepEqual(got, last) {
			t.Errorf("the last runs are %v, want %v", got, last)
		}

		asked := rapid.SliceOfN(rapid.SampledFrom(append([]int64{0, 1 << 40}, ids...)), 0, 150).Draw(rt, "asked")
		want := map[int64]ledger.Run{}
		for _, id := range asked {
			if r, kept := all[id]; kept {
				want[id] = r
			}
		}
		if got := must[map[int64]ledger.Run](t)(l.Runs.ByID(t.Context(), asked)); !reflect.DeepEqual(got, want) {
			t.Errorf("asked for %v: %v, want %v", asked, fmt.Sprint(got), want)
		}
	})
}
