package next_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"rouse/agent/tool"
	"rouse/agent/tool/next"
	"rouse/internal/contract"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/pause"
	"rouse/internal/ledger/wake"
	"rouse/scheduler/schedule"
)

// start is the time at which a synctest bubble begins: Saturday, one o'clock at night in Berlin.
var start = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

type bench struct {
	t      *testing.T
	l      *ledger.Ledger
	limits schedule.Limits
	wake   *ledger.WakeDetail
	run    tool.Invocation // without a key, because each call gets its own
	calls  int
	views  []string // saved views; nil if there is no database
}

// inBubble gives a test its own ledger and clock. An agent in reactive mode has the fewest limits.
func inBubble(t *testing.T, test func(t *testing.T, b *bench)) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ledger.db")
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}

	synctest.Test(t, func(t *testing.T) {
		l, err := ledger.Open(t.Context(), ledger.Options{Path: path})
		if err != nil {
			t.Fatal(err)
		}

		limits, _ := schedule.Preset(schedule.ModeReactive)
		limits.Zone = berlin
		test(t, &bench{t: t, l: l, limits: limits, run: tool.Invocation{Run: 7, Job: "morning", Agent: "ann"}})
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
}

func (b *bench) call(name, args string) tool.Envelope {
	b.t.Helper()
	tools, err := next.Tools(next.Options{Ledger: b.l, Limits: b.limits, Wake: b.wake,
		Redact: strings.NewReplacer("sk-canary", "[secret]").Replace, ViewProblem: b.lookUpViews()})
	if err != nil {
		b.t.Fatal(err)
	}

	r, err := tool.NewRegistry(tools...)
	if err != nil {
		b.t.Fatal(err)
	}

	b.calls++
	run := b.run
	if run.Key == "" {
		run.Key = fmt.Sprint("m", b.calls)
	}

	e, err := r.Call(b.t.Context(), run, name, json.RawMessage(args))
	if err != nil {
		b.t.Fatalf("%s %s: %v", name, args, err)
	}

	return e
}

// lookUpViews returns the ViewProblem of an agent whose database has b.views.
func (b *bench) lookUpViews() func(context.Context, string) (string, error) {
	if b.views == nil {
		return nil
	}

	return func(_ context.Context, name string) (string, error) {
		if slices.Contains(b.views, name) {
			return "", nil
		}
		return fmt.Sprintf("there is no saved view %q", name), nil
	}
}

func (b *bench) slot() wake.Wake {
	b.t.Helper()
	s, _, err := b.l.Wakes.Next(b.t.Context(), b.run.Agent)
	if err != nil {
		b.t.Fatal(err)
	}
	return s
}

// wakeUp fires the agent's slot and starts its run.
func (b *bench) wakeUp() ledger.Run {
	b.t.Helper()
	s := b.slot()
	time.Sleep(time.Until(s.At))
	d, err := b.l.FireWakes(b.t.Context(), time.Now(), 1, s.ID)
	if err != nil || d[0].Decision != wake.Run {
		b.t.Fatalf("%+v (%v)", d, err)
	}

	run, _, err := b.l.StartAttempt(b.t.Context(), d[0].Run)
	if err != nil {
		b.t.Fatal(err)
	}

	return run
}

// TestArguments: OSA-71, the arguments of a call, and the errors for wrong ones.
func TestArguments(t *testing.T) {
	long := strings.Repeat("ü", 8001)
	cases := map[string]struct {
		args          string
		field, expect string // of an invalid_args
		asked         time.Time
	}{
		"a time":                   {args: `{"scheduled_at":"2000-01-01T08:00:00+01:00","instructions":"x"}`, asked: start.Add(7 * time.Hour)},
		"in UTC":                   {args: `{"scheduled_at":"2000-01-01T08:00:00Z","instructions":"x"}`, asked: start.Add(8 * time.Hour)},
		"a fraction":               {args: `{"scheduled_at":"2000-01-01T08:00:00.250Z","instructions":"x"}`, asked: start.Add(8*time.Hour + 250*time.Millisecond)},
		"no seconds":               {args: `{"scheduled_at":"2000-01-01T08:00Z","instructions":"x"}`, asked: start.Add(8 * time.Hour)},
		"a short offset":           {args: `{"scheduled_at":"2000-01-01T08:00:00+0100","instructions":"x"}`, asked: start.Add(7 * time.Hour)},
		"small letters":            {args: `{"scheduled_at":"2000-01-01t08:00:00z","instructions":"x"}`, asked: start.Add(8 * time.Hour)},
		"local":                    {args: `{"scheduled_at":"2000-01-01T08:00:00","instructions":"x"}`, asked: start.Add(7 * time.Hour)},
		"local, short":             {args: `{"scheduled_at":" 2000-01-01 08:00 ","instructions":"x"}`, asked: start.Add(7 * time.Hour)},
		"in seconds":               {args: `{"in_seconds":3600,"instructions":"x"}`, asked: start.Add(time.Hour)},
		"in seconds, as text":      {args: `{"in_seconds":"3600","instructions":"x"}`, asked: start.Add(time.Hour)},
		"now":                      {args: `{"in_seconds":0,"instructions":"x"}`, asked: start},
		"further than time goes":   {args: `{"in_seconds":9223372036854775807,"instructions":"x"}`, asked: start.Add(9223372036 * time.Second)},
		"scheduled_at wins":        {args: `{"scheduled_at":"2000-01-01T08:00:00Z","in_seconds":60,"instructions":"x"}`, asked: start.Add(8 * time.Hour)},
		"also over a wrong one":    {args: `{"scheduled_at":"2000-01-01T08:00:00Z","in_seconds":-1,"instructions":"x"}`, asked: start.Add(8 * time.Hour)},
		"fillers":                  {args: `{"scheduled_at":"","in_seconds":60,"priority":"","on_miss":"","context_views":null,"instructions":"x"}`, asked: start.Add(time.Minute)},
		"all":                      {args: `{"in_seconds":600,"instructions":"x","priority":"low","on_miss":"skip","context_views":["open"]}`, asked: start.Add(10 * time.Minute)},
		"neither":                  {args: `{"instructions":"x"}`, field: "scheduled_at", expect: "in_seconds"},
		"empty and absent":         {args: `{"scheduled_at":"","instructions":"x"}`, field: "scheduled_at", expect: "RFC 3339"},
		"malformed":                {args: `{"scheduled_at":"tomorrow","instructions":"x"}`, field: "scheduled_at", expect: "RFC 3339"},
		"malformed beside seconds": {args: `{"scheduled_at":"8:00","in_seconds":60,"instructions":"x"}`, field: "scheduled_at", expect: "RFC 3339"},
		"a date":                   {args: `{"scheduled_at":"2000-01-02","instructions":"x"}`, field: "scheduled_at", expect: "RFC 3339"},
		"no such date":             {args: `{"scheduled_at":"2000-02-30T08:00:00Z","instructions":"x"}`, field: "scheduled_at", expect: "RFC 3339"},
		"after all calendars":      {args: `{"scheduled_at":"9999-12-31T23:59:59-10:00","instructions":"x"}`, field: "scheduled_at", expect: "RFC 3339"},
		"before all calendars":     {args: `{"scheduled_at":"0000-01-01T00:00:00+10:00","instructions":"x"}`, field: "scheduled_at", expect: "RFC 3339"},
		"no text":                  {args: `{"scheduled_at":5,"instructions":"x"}`, field: "scheduled_at", expect: "a string"},
		"the past in seconds":      {args: `{"in_seconds":-1,"instructions":"x"}`, field: "in_seconds", expect: "from 0 on"},
		"half a second":            {args: `{"in_seconds":0.5,"instructions":"x"}`, field: "in_seconds", expect: "a whole number"},
		"no instructions":          {args: `{"in_seconds":60}`, field: "instructions", expect: "a string"},
		"null instructions":        {args: `{"in_seconds":60,"instructions":null}`, field: "instructions", expect: "a string"},
		"blank instructions":       {args: `{"in_seconds":60,"instructions":" \n\t"}`, field: "instructions", expect: "what to do"},
		"empty instructions":       {args: `{"in_seconds":60,"instructions":""}`, field: "instructions", expect: "what to do"},
		"long instructions":        {args: `{"in_seconds":60,"instructions":"` + long + `"}`, field: "instructions", expect: "at most 8000 characters"},
		"priority":                 {args: `{"in_seconds":60,"instructions":"x","priority":"high"}`, field: "priority", expect: "one of normal, low"},
		"on_miss":                  {args: `{"in_seconds":60,"instructions":"x","on_miss":"never"}`, field: "on_miss", expect: "one of skip, run_once, run_catchup"},
		"a view without a name":    {args: `{"in_seconds":60,"instructions":"x","context_views":[" "]}`, field: "context_views", expect: "names"},
		"many views":               {args: `{"in_seconds":60,"instructions":"x","context_views":["v"` + strings.Repeat(`,"v"`, 20) + `]}`, field: "context_views", expect: "at most 20"},
		"unknown":                  {args: `{"in_seconds":60,"instructions":"x","run_at":1}`, field: "run_at", expect: "scheduled_at"},
	}

	inBubble(t, func(t *testing.T, b *bench) {
		for name, c := range cases {
			b.run.Agent = name
			e := b.call("schedule_next_run", c.args)
			s := b.slot()
			switch {
			case c.field == "":
				if !e.OK || !s.AskedAt.Equal(c.asked) || s.Instructions != "x" {
					t.Errorf("%s: %+v: asked for %s, want %s", name, e, s.AskedAt, c.asked)
				}
			case e.Kind != tool.KindInvalidArgs || e.Field != c.field || !strings.Contains(e.Expected, c.expect) || !e.Retryable:
				t.Errorf("%s: %+v, want field %s, expected %q", name, e, c.field, c.expect)
			case s.ID != 0:
				t.Errorf("%s: planned: %+v", name, s)
			}
		}
	})
}

// TestResults: OSA-71, the exact result of a call, which is not a failure even if limits change the
// request.
func TestResults(t *testing.T) {
	cases := []struct {
		name   string
		limits func(*schedule.Limits)
		args   string
		result string
		warn   []string
	}{
		{"as asked", func(*schedule.Limits) {}, `{"scheduled_at":"2000-01-01T12:00:00Z","instructions":"Count <all> the money & more."}`,
			`{"clamped":false,"clamp_reasons":[],"remaining_budget_today":48,"scheduled_at":"2000-01-01T13:00:00+01:00","instructions":"Count <all> the money & more.","context_views":[],"priority":"normal","on_miss":"run_once","scheduled_by":"agent"}`, nil},
		{"the shortest time", func(*schedule.Limits) {}, `{"in_seconds":300,"instructions":"x","priority":"low","on_miss":"run_catchup"}`,
			`{"clamped":false,"clamp_reasons":[],"remaining_budget_today":48,"scheduled_at":"2000-01-01T01:05:00+01:00","instructions":"x","context_views":[],"priority":"low","on_miss":"run_catchup","scheduled_by":"agent"}`, nil},
		{"the past", func(l *schedule.Limits) { l.MinInterval = 0 }, `{"scheduled_at":"1999-01-01T00:00:00Z","instructions":"x"}`,
			`{"clamped":false,"clamp_reasons":[],"remaining_budget_today":48,"scheduled_at":"2000-01-01T01:00:00+01:00","instructions":"x","context_views":[],"priority":"normal","on_miss":"run_once","scheduled_by":"agent"}`, nil},
		{"moved", func(l *schedule.Limits) { l.Quiet = schedule.Quiet{From: 22 * 60, To: 7 * 60} }, `{"in_seconds":0,"instructions":"x"}`,
			`{"clamped":true,"clamp_reasons":["min_interval","quiet_hours"],"remaining_budget_today":48,"scheduled_at":"2000-01-01T07:00:00+01:00","instructions":"x","context_views":[],"priority":"normal","on_miss":"run_once","scheduled_by":"agent"}`,
			[]string{"at least 5m from now", "quiet hours, 22:00-07:00; the wake is now planned for Sat 2000-01-01 07:00 CET"}},
		{"no limit", func(l *schedule.Limits) { l.DailyCap = 0 }, `{"in_seconds":600,"instructions":"x"}`,
			`{"clamped":false,"clamp_reasons":[],"remaining_budget_today":null,"scheduled_at":"2000-01-01T01:10:00+01:00","instructions":"x","context_views":[],"priority":"normal","on_miss":"run_once","scheduled_by":"agent"}`, nil},
		{"views", func(*schedule.Limits) {}, `{"in_seconds":600,"instructions":"x","context_views":["open","paid"]}`,
			`{"clamped":false,"clamp_reasons":[],"remaining_budget_today":48,"scheduled_at":"2000-01-01T01:10:00+01:00","instructions":"x","context_views":["open","paid"],"priority":"normal","on_miss":"run_once","scheduled_by":"agent"}`,
			[]string{`there is no saved view "paid"`}},
		{"views, all there", func(*schedule.Limits) {}, `{"in_seconds":600,"instructions":"x","context_views":["open"]}`,
			`{"clamped":false,"clamp_reasons":[],"remaining_budget_today":48,"scheduled_at":"2000-01-01T01:10:00+01:00","instructions":"x","context_views":["open"],"priority":"normal","on_miss":"run_once","scheduled_by":"agent"}`, nil},
		{"a secret", func(*schedule.Limits) {}, `{"in_seconds":600,"instructions":"use sk-canary"}`,
			`{"clamped":false,"clamp_reasons":[],"remaining_budget_today":48,"scheduled_at":"2000-01-01T01:10:00+01:00","instructions":"use [secret]","context_views":[],"priority":"normal","on_miss":"run_once","scheduled_by":"agent"}`, nil},
		{"manual", func(l *schedule.Limits) { l.Mode = schedule.ModeManual }, `{"in_seconds":600,"instructions":"x","context_views":["open"]}`,
			`{"clamped":false,"clamp_reasons":["mode_manual"],"remaining_budget_today":0,"rejected":true}`, []string{"only the owner plans"}},
		{"no day", func(l *schedule.Limits) { l.Days = 0 }, `{"in_seconds":600,"instructions":"x"}`,
			`{"clamped":false,"clamp_reasons":["day_not_allowed"],"remaining_budget_today":48,"rejected":true}`, []string{"no day of the week"}},
	}
	inBubble(t, func(t *testing.T, b *bench) {
		plain := b.limits
		b.views = []string{"open"}
		for _, c := range cases {
			b.run.Agent, b.limits = c.name, plain
			c.limits(&b.limits)
			e := b.call("schedule_next_run", c.args)
			if !e.OK || string(e.Result) != c.result {
				t.Errorf("%s: %s\ngot  %s\nwant %s", c.name, e.Message, e.Result, c.result)
			}
			if len(e.Warnings) != len(c.warn) {
				t.Fatalf("%s: warnings %q", c.name, e.Warnings)
			}

			for i, part := range c.warn {
				if !strings.Contains(e.Warnings[i], part) {
					t.Errorf("%s: warning %q, want %q", c.name, e.Warnings[i], part)
				}
			}
		}
	})
}

// TestViewsWithoutDatabase checks that an agent without a database is told that a wake starts
// without rows.
func TestViewsWithoutDatabase(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		e := b.call("schedule_next_run", `{"in_seconds":600,"instructions":"x","context_views":["open"]}`)
		if want := "context_views: you have no database, so that run begins without rows."; !e.OK || !slices.Equal(e.Warnings, []string{want}) {
			t.Errorf("%+v", e)
		}
	})
}

// TestBudget: OSA-74 and C-16, started wakes count for 24 hours, whatever their outcome. Planned
// wakes do not count.
func TestBudget(t *testing.T) {
	row, counted := contract.Of(t, "OSA-74"), contract.Of(t, "C-16")
	inBubble(t, func(t *testing.T, b *bench) {
		b.limits.DailyCap = 2
		left := func(args, want string) {
			t.Helper()
			if e := b.call("schedule_next_run", args); !e.OK || !strings.Contains(string(e.Result), want) {
				t.Errorf("%s, want %s", e.Result, want)
			}
		}

		// Runs started by other triggers do not count.
		accepted, err := b.l.Enqueue(t.Context(), ledger.Request{Agent: "ann", Trigger: domain.TriggerManual})
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := b.l.StartAttempt(t.Context(), accepted[0].Run); err != nil {
			t.Fatal(err)
		}

		for _, want := range []string{`"remaining_budget_today":2,"scheduled_at"`, `"remaining_budget_today":1,"scheduled_at"`} {
			left(`{"in_seconds":600,"instructions":"x"}`, want)
			left(`{"in_seconds":1200,"instructions":"x"}`, want)
			b.wakeUp()
		}

		left(`{"in_seconds":600,"instructions":"x"}`, fmt.Sprintf(`"clamp_reasons":[%q],"remaining_budget_today":0,"rejected":true`, counted.Quote("daily_cap")))
		plain := b.limits
		b.limits.DailyCap = row.Number("0")
		left(`{"in_seconds":600,"instructions":"x"}`, `"remaining_budget_today":null,"scheduled_at"`)
		b.limits.Mode = schedule.Mode(row.Quote("manual"))
		left(`{"in_seconds":600,"instructions":"x"}`, `"remaining_budget_today":0,"rejected":true`)
		b.limits = plain
		time.Sleep(time.Duration(row.Number("24"))*time.Hour - 20*time.Minute)
		left(`{"in_seconds":600,"instructions":"x"}`, `"remaining_budget_today":1,"scheduled_at"`)
		if _, err := b.l.Pauses.Set(t.Context(), pause.Pause{Scope: pause.Agent, Name: "ann"}); err != nil {
			t.Fatal(err)
		}

		left(`{"in_seconds":600,"instructions":"x"}`, `"clamp_reasons":["paused"],"remaining_budget_today":1,"rejected":true`)
	})
}

// TestLastWriteWins: OSA-71, an agent has one planned wake, and the last one counts. A rejected
// request keeps the planned wake. A run that replaces the wake of another run is told about it.
func TestLastWriteWins(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		if e := b.call("schedule_next_run", `{"in_seconds":600,"instructions":"first"}`); len(e.Warnings) != 0 {
			t.Errorf("%q", e.Warnings)
		}

		first := b.slot().ID
		for range 2 { // the same call again, as after a crash
			if e := b.call("schedule_next_run", `{"in_seconds":1200,"instructions":"second\nline"}`); len(e.Warnings) != 0 {
				t.Errorf("%q", e.Warnings)
			}
		}

		if s := b.slot(); s.Instructions != "second\nline" || s.ID == first || s.Run != 7 || s.Job != "morning" || s.ScheduledBy != ledger.ByAgent {
			t.Errorf("%+v", s)
		}

		b.run.Run = 8
		e := b.call("schedule_next_run", `{"in_seconds":600,"instructions":"third"}`)
		if want := `This took the place of the wake that run 7 had planned for Sat 2000-01-01 01:20 CET: "second line"`; !slices.Equal(e.Warnings, []string{want}) {
			t.Errorf("%q", e.Warnings)
		}

		b.limits.Mode = schedule.ModeManual
		if e := b.call("schedule_next_run", `{"in_seconds":600,"instructions":"fourth"}`); !e.OK || b.slot().Instructions != "third" {
			t.Errorf("%s, %+v", e.Result, b.slot())
		}
	})
}

// TestARepeatedCallPlansOnce checks that a call repeated after a crash does not plan a wake that
// has already fired. It may overwrite a wake that is still planned.
func TestARepeatedCallPlansOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.run.Key = "cut off"
		const args = `{"in_seconds":300,"instructions":"look again"}`
		b.call("schedule_next_run", args)
		b.call("schedule_next_run", args)
		slots, err := b.l.Wakes.List(t.Context())
		if err != nil || len(slots) != 1 {
			t.Fatalf("slots: %+v (%v)", slots, err)
		}

		time.Sleep(301 * time.Second)
		if d, err := b.l.FireWakes(t.Context(), time.Now(), 0, slots[0].ID); err != nil || d[0].Run == 0 {
			t.Fatalf("fired: %+v (%v)", d, err)
		}
		if e := b.call("schedule_next_run", args); !e.OK {
			t.Errorf("the repeated call failed: %+v", e)
		}
		if _, planned, err := b.l.Wakes.Next(t.Context(), "ann"); err != nil || planned {
			t.Errorf("the repeated call planned a second wake (%v)", err)
		}

		b.run.Key = "another"
		b.call("schedule_next_run", args)
		if _, planned, err := b.l.Wakes.Next(t.Context(), "ann"); err != nil || !planned {
			t.Errorf("another call planned nothing (%v)", err)
		}
	})
}

// TestCancel: OSA-71, a wake can be cancelled, except the owner's wake in manual mode.
func TestCancel(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.call("schedule_next_run", `{"in_seconds":600,"instructions":"x"}`)
		for _, want := range []string{`{"cancelled":true}`, `{"cancelled":false}`} {
			if e := b.call("cancel_next_run", `{}`); !e.OK || string(e.Result) != want || len(e.Warnings) != 0 {
				t.Errorf("%s %q, want %s", e.Result, e.Warnings, want)
			}
		}

		b.call("schedule_next_run", `{"in_seconds":600,"instructions":"the owner's"}`)
		b.limits.Mode = schedule.ModeManual
		if e := b.call("cancel_next_run", `{}`); string(e.Result) != `{"cancelled":false}` || len(e.Warnings) != 1 || b.slot().ID == 0 {
			t.Errorf("%s %q %+v", e.Result, e.Warnings, b.slot())
		}
		if e := b.call("cancel_next_run", `{"agent":"bob"}`); e.Kind != tool.KindInvalidArgs || e.Field != "agent" {
			t.Errorf("%+v", e)
		}
	})
}

// TestChain checks that a chain of wakes keeps its first job and its length, and ends at the
// owner's limit. A run started by another trigger begins a new chain.
func TestChain(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.limits.MaxChain = 2
		for depth := 1; depth <= 2; depth++ {
			b.call("schedule_next_run", `{"in_seconds":600,"instructions":"x"}`)
			if s := b.slot(); s.Depth != depth || s.Job != "morning" || s.Run != b.run.Run {
				t.Errorf("wake %d: %+v", depth, s)
			}
			b.woken()
		}

		if e := b.call("schedule_next_run", `{"in_seconds":600,"instructions":"x"}`); !strings.Contains(string(e.Result), `"clamp_reasons":["max_chain"],`) || b.slot().ID != 0 {
			t.Errorf("%s", e.Result)
		}

		res, err := next.PlanWake(t.Context(), b.l, b.limits, next.Request{Agent: "ann", ByUser: true, In: time.Minute, Instructions: "go on"})
		if err != nil || res.Rejected || b.slot().Depth != 0 || b.slot().Job != "" {
			t.Errorf("%+v (%v) %+v", res, err, b.slot())
		}

		b.woken()
		if b.call("schedule_next_run", `{"in_seconds":600,"instructions":"x"}`); b.slot().Depth != 1 {
			t.Errorf("%+v", b.slot())
		}
	})
}

// woken makes the planned wake start the run that calls.
func (b *bench) woken() {
	b.t.Helper()
	run := b.wakeUp()
	var d ledger.TriggerDetail
	if err := json.Unmarshal(run.Detail, &d); err != nil {
		b.t.Fatal(err)
	}
	b.wake, b.run.Run, b.run.Job = d.Wake, run.ID, run.Job
}

// TestOwner: OSA-73, the owner's plans are limited only by the horizon, and use the same function.
func TestOwner(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.limits, _ = schedule.Preset(schedule.ModeManual)
		ask := next.Request{Agent: "ann", ByUser: true, In: time.Second, Instructions: "Say hello.", OnMiss: "skip", Priority: "low"}
		res, err := next.PlanWake(t.Context(), b.l, b.limits, ask)
		if err != nil || res.Clamped || res.Rejected || res.ScheduledBy != ledger.ByUser || !res.ScheduledAt.Equal(start.Add(time.Second)) || res.OnMiss != "skip" || res.Priority != "low" {
			t.Errorf("%+v (%v)", res, err)
		}

		ask.At = start.AddDate(1, 0, 0)
		res, err = next.PlanWake(t.Context(), b.l, b.limits, ask)
		if err != nil || !slices.Equal(res.ClampReasons, []string{schedule.ReasonHorizon}) || !res.ScheduledAt.Equal(start.AddDate(0, 0, 7)) || len(res.Warnings) != 2 {
			t.Errorf("%+v (%v)", res, err)
		}

		for _, wrong := range []next.Request{{In: -1, Instructions: "x"}, {Instructions: "x", Priority: "high"}, {Instructions: "x", OnMiss: "never"}, {},
			{Instructions: "x", At: start.AddDate(9000, 0, 0)}} {
			var invalid *next.Invalid
			if _, err := next.PlanWake(t.Context(), b.l, b.limits, wrong); !errors.As(err, &invalid) || invalid.Field == "" || !strings.Contains(err.Error(), "; expected ") {
				t.Errorf("%+v: %v", wrong, err)
			}
		}
	})
}

// TestBrokenLedger checks that a broken ledger is an error of the host.
func TestBrokenLedger(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		tools, err := next.Tools(next.Options{Ledger: b.l, Limits: b.limits})
		if err != nil {
			t.Fatal(err)
		}

		r, err := tool.NewRegistry(tools...)
		if err != nil {
			t.Fatal(err)
		}
		if err := b.l.Close(); err != nil {
			t.Fatal(err)
		}

		for name, args := range map[string]string{"schedule_next_run": `{"in_seconds":1,"instructions":"x"}`, "cancel_next_run": `{}`} {
			if e, err := r.Call(t.Context(), b.run, name, json.RawMessage(args)); err == nil {
				t.Errorf("%s: %+v", name, e)
			}
		}
	})
}

// TestDescriptions checks that the description names the zone of times without a zone.
func TestDescriptions(t *testing.T) {
	for zone, want := range map[*time.Location]string{nil: "read in UTC.", time.Local: "read in the local time of this machine.", time.FixedZone("Here/There", 0): "read in Here/There."} {
		tools, err := next.Tools(next.Options{Limits: schedule.Limits{Zone: zone}})
		if err != nil || len(tools) != 2 || !strings.HasSuffix(strings.TrimSpace(tools[0].Description()), want) || tools[0].Effect() != domain.EffectDatabase || tools[1].Effect() != domain.EffectDatabase {
			t.Errorf("%+v (%v)", tools, err)
		}
	}
}

// TestPlanTools: OSA-71, each argument and each field of the result.
func TestPlanTools(t *testing.T) {
	row := contract.Of(t, "OSA-71")
	q := row.Quote
	inBubble(t, func(t *testing.T, b *bench) {
		call := func(name string, args map[string]any) tool.Envelope {
			raw, err := json.Marshal(args)
			if err != nil {
				t.Fatal(err)
			}
			return b.call(name, string(raw))
		}
		result := func(e tool.Envelope) (out map[string]any) {
			if err := json.Unmarshal(e.Result, &out); !e.OK || err != nil {
				t.Fatalf("%+v, %v", e, err)
			}
			return out
		}

		plan := q("schedule_next_run")
		for _, priority := range []string{q("normal"), q("low")} {
			for _, onMiss := range []string{q("skip"), q("run_once"), q("run_catchup")} {
				args := map[string]any{q("scheduled_at"): "2000-01-01T12:00:00Z", q("in_seconds"): 600, q("instructions"): priority + onMiss, q("context_views"): []string{"v"},
					q("priority"): priority, q("on_miss"): onMiss}
				got := result(call(plan, args))
				if got[q("clamped")] != false || got[q("remaining_budget_today")] != 48.0 || len(got[q("clamp_reasons")].([]any)) > 0 {
					t.Errorf("%v", got)
				}
				s := b.slot()
				if !s.At.Equal(start.Add(12*time.Hour)) || s.Priority != priority || string(s.OnMiss) != onMiss || s.Instructions != priority+onMiss || fmt.Sprint(s.ContextViews) != "[v]" {
					t.Errorf("planned: %+v", s)
				}
			}
		}
		if all, err := b.l.Wakes.List(t.Context()); err != nil || len(all) != 1 {
			t.Errorf("%d wakes are planned (%v)", len(all), err)
		}

		for seconds, want := range map[int]bool{row.Number("0"): true, row.Number("0") - 1: false} {
			if e := call(plan, map[string]any{"in_seconds": seconds, "instructions": "x"}); e.OK != want {
				t.Errorf("in %d seconds: %+v", seconds, e)
			}
		}
		if e := call(plan, map[string]any{"instructions": "x"}); string(e.Kind) != q("invalid_args") {
			t.Errorf("without a time: %+v", e)
		}
		for _, want := range []bool{true, false} {
			if got := result(call(q("cancel_next_run"), map[string]any{}))[q("cancelled")]; got != want {
				t.Errorf("cancelled: %v, want %t", got, want)
			}
		}
		b.limits.Mode = schedule.ModeManual
		e := call(plan, map[string]any{"in_seconds": 600, "instructions": "x"})
		if got := result(e); got[q("rejected")] != true || len(e.Warnings) != len(got["clamp_reasons"].([]any)) {
			t.Errorf("%v %q", got, e.Warnings)
		}
	})
}
