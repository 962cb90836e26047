package prompt

import (
	"cmp"
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"rouse/agent/loop"
	"rouse/agent/permit"
	"rouse/agent/plan"
	"rouse/internal/contract"
	"rouse/internal/domain"
	"rouse/internal/ledger"
)

// TestWakeText checks OSA-76: the exact prompt of a wake.
func TestWakeText(t *testing.T) {
	t.Parallel()
	row := contract.Of(t, "OSA-76")
	parts := []string{row.Quote("This run is a wake that you planned on") + " Fri 2026-11-20 12:00", row.Quote("This run begins fresh"), row.Quote("Planned for:") + " Sat 2026-11-21 08:00",
		row.Quote("Your last run to end was") + " run 57 (job inbox): budget exceeded", "\n\nLook at {{ .File }} again.\n\nYour owner says: ${HOME}\n"}
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}

	planned := time.Date(2026, 11, 21, 7, 0, 0, 0, time.UTC)
	full := ledger.WakeDetail{Instructions: "Look at {{ .File }} again.\n\nYour owner says: ${HOME}\n", ContextViews: []string{"open", "a\nb"}, ScheduledBy: ledger.ByAgent,
		Planned: planned, Asked: planned.Add(-20 * time.Hour), AskedBy: 41, Job: "morning-report", Depth: 2}
	for name, c := range map[string]struct {
		wake    ledger.WakeDetail
		started time.Time
		last    ledger.Run
		zone    *time.Location
		want    string
	}{
		"all": {full, planned.Add(3*time.Hour + 12*time.Minute), ledger.Run{ID: 57, Job: "inbox", Outcome: domain.OutcomeBudget, FinishedAt: planned.Add(-time.Hour)}, berlin,
			`This run is a wake that you planned on Fri 2026-11-20 12:00:00 CET in run 41, in a chain that the job morning-report began.
This run begins fresh: you remember no earlier run and no conversation. What you know is in your database and your files.
Planned for: Sat 2026-11-21 08:00:00 CET
Started:     Sat 2026-11-21 11:12:00 CET (3h12m late)
Your last run to end was run 57 (job inbox): budget exceeded, on Sat 2026-11-21 07:00:00 CET.
The instructions for this run, word for word:

Look at {{ .File }} again.

Your owner says: ${HOME}
`},
		"of the owner, the first": {ledger.WakeDetail{Instructions: "Say hello.", ScheduledBy: ledger.ByUser, Planned: planned, Asked: planned.Add(-time.Hour)}, planned.Add(2 * time.Second), ledger.Run{}, nil,
			`This run is a wake that your owner planned on Sat 2026-11-21 06:00:00 UTC.
This run begins fresh: you remember no earlier run and no conversation. What you know is in your database and your files.
Planned for: Sat 2026-11-21 07:00:00 UTC
Started:     Sat 2026-11-21 07:00:02 UTC
No other run of yours has ended so far.
The instructions for this run, word for word:

Say hello.`},
		"after another": {ledger.WakeDetail{Instructions: "x", ScheduledBy: ledger.BySystem, Planned: planned, Asked: planned}, planned,
			ledger.Run{ID: 9, Trigger: domain.TriggerSelf, Outcome: domain.OutcomeSuccess, FinishedAt: planned}, nil,
			`This run is a wake that the host planned on Sat 2026-11-21 07:00:00 UTC.
This run begins fresh: you remember no earlier run and no conversation. What you know is in your database and your files.
Planned for: Sat 2026-11-21 07:00:00 UTC
Started:     Sat 2026-11-21 07:00:00 UTC
Your last run to end was run 9 (a wake): success, on Sat 2026-11-21 07:00:00 UTC.
The instructions for this run, word for word:

x`},
	} {
		t.Run(name, func(t *testing.T) {
			if got := WakeText(ledger.Run{StartedAt: c.started}, c.wake, c.last, cmp.Or(c.zone, time.UTC)); got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			} else if name == "all" {
				for _, part := range parts {
					if !strings.Contains(got, part) {
						t.Errorf("%q is not in\n%s", part, got)
					}
				}
			}
		})
	}
}

// TestWakeBounds checks that a wake, and the wake of a wake, stays within the bounds of the agent
// and of the job that began its chain. An unset bound means no limit.
func TestWakeBounds(t *testing.T) {
	t.Parallel()
	one := rapid.SampledFrom([]int{-1, 0, 0, 1, 7, 29, 30, 31, 99, 100, 101, 5000})
	draw := rapid.Custom(func(t *rapid.T) loop.Bounds {
		span := func(name string) time.Duration { return time.Duration(one.Draw(t, name)) * time.Minute }
		return loop.Bounds{Steps: one.Draw(t, "steps"), Calls: one.Draw(t, "calls"), Wall: span("wall"), Idle: span("idle"),
			Tokens: int64(one.Draw(t, "tokens")), Output: int64(one.Draw(t, "output")) << 12}
	})

	rapid.Check(t, func(t *rapid.T) {
		a := plan.Agent{Name: "ann", Bounds: draw.Draw(t, "agent")}
		p := plan.Active{Plan: plan.Plan{Agents: map[string]plan.Agent{"ann": a, "bob": {Name: "bob"}}, Jobs: map[string]plan.Job{"j": {Name: "j", Agent: "ann", Bounds: draw.Draw(t, "job")}}}}
		of := func(run ledger.Run, w *ledger.WakeDetail) loop.Bounds {
			detail, err := json.Marshal(ledger.TriggerDetail{Wake: w})
			if err != nil {
				t.Fatal(err)
			}

			run.Detail = detail
			task, err := p.Resolve(run)
			if err != nil {
				t.Fatal(err)
			}
			return permit.Bounds(task)
		}

		own, job := of(ledger.Run{Agent: "ann"}, nil), of(ledger.Run{Agent: "ann", Job: "j"}, nil)
		wake := of(ledger.Run{Agent: "ann"}, &ledger.WakeDetail{Job: "j", Depth: rapid.IntRange(0, 9).Draw(t, "depth")})
		for i, limit := range limits(wake) {
			if strictest := min(limits(own)[i], limits(job)[i]); limit != strictest {
				t.Fatalf("bound %d: wake %+v, agent %+v, job %+v", i, wake, own, job)
			}
		}

		for _, w := range []ledger.WakeDetail{{}, {Job: "gone"}} {
			if got := of(ledger.Run{Agent: "ann"}, &w); got != own {
				t.Fatalf("%+v, without a job %+v", got, own)
			}
		}

		if got := of(ledger.Run{Agent: "bob"}, &ledger.WakeDetail{Job: "j"}); got != (loop.Bounds{}) {
			t.Fatalf("the job of another agent bounds: %+v", got)
		}
	})
}

// limits returns the effective bounds, with the defaults. No limit is the largest number.
func limits(b loop.Bounds) []int64 {
	all := []int64{int64(b.Steps), int64(b.Calls), int64(b.Wall), int64(b.Idle), b.Tokens, b.Output}
	defaults := []int64{30, 100, int64(10 * time.Minute), int64(5 * time.Minute), math.MaxInt64, 1 << 20}
	for i, v := range all {
		switch {
		case v == 0:
			all[i] = defaults[i]
		case v < 0:
			all[i] = math.MaxInt64
		}
	}

	return all
}
