package wake

import (
	"testing"
	"time"

	"rouse/internal/contract"
	"rouse/internal/domain"
	"rouse/internal/ledger/pause"
)

// TestDecideWake checks the decisions about due wakes (OSA-75, OSA-78, C-2).
func TestDecideWake(t *testing.T) {
	row, low := contract.Of(t, "OSA-75"), contract.Of(t, "C-2")
	late, miss := time.Duration(row.Number("5"))*time.Minute, func(literal string) domain.OnMiss { return domain.OnMiss(row.Quote(literal)) }
	now := time.Date(2026, 3, 29, 12, 0, 0, 0, time.UTC)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	on := func(scope, name string, until time.Duration) pause.Pause {
		p := pause.Pause{Scope: scope, Name: name, Since: ago(time.Hour), Reason: "holidays"}
		if until != 0 {
			p.Until = now.Add(until)
		}
		return p
	}

	const (
		ms = time.Millisecond
	)
	stale := late + ms
	for name, c := range map[string]struct {
		late     time.Duration
		miss     domain.OnMiss
		priority string
		deferred bool
		state    State
		want     string
		at       time.Duration // from now; 0 means not set
		puts     bool          // deferred afterwards
		reason   string
	}{
		"in time":                    {want: Run},
		"before its time":            {late: -ms, want: Deferred, at: ms, reason: "its time has not come"},
		"before its time and paused": {late: -time.Hour, state: State{Pauses: []pause.Pause{on(pause.All, "", 0)}}, want: Deferred, at: time.Hour, reason: "its time has not come"},
		"five minutes late":          {late: late, miss: "skip", want: Run},
		"stale, skip":                {late: stale, miss: miss("skip"), want: Dropped, reason: row.Quote("stale-skip") + ": its time passed 5m0s ago; on_miss is skip"},
		"stale, run_once":            {late: stale, miss: miss("run_once"), want: Run, reason: "5m0s late; on_miss is run_once"},
		"stale, run_catchup":         {late: 48 * time.Hour, miss: miss("run_catchup"), want: Run, reason: "48h0m0s late; on_miss is run_catchup"},

		"paused":                        {state: State{Pauses: []pause.Pause{on(pause.Agent, "a", time.Hour)}}, want: Paused, at: time.Hour, reason: "paused: agent a until 2026-03-29T13:00:00Z: holidays"},
		"everything is paused":          {state: State{Pauses: []pause.Pause{on(pause.All, "", 0)}}, want: Paused, reason: "paused: everything: holidays"},
		"paused until now":              {state: State{Pauses: []pause.Pause{on(pause.Agent, "a", -ms)}}, want: Run},
		"a pause that ends now":         {state: State{Pauses: []pause.Pause{{Scope: pause.Agent, Name: "a", Since: ago(time.Hour), Until: now}}}, want: Run},
		"another agent is paused":       {state: State{Pauses: []pause.Pause{on(pause.Agent, "b", 0)}}, want: Run},
		"a job of its name is paused":   {state: State{Pauses: []pause.Pause{on(pause.Job, "a", 0), on(pause.Job, "", 0)}}, want: Run},
		"a pause outlasts staleness":    {late: 48 * time.Hour, miss: "skip", state: State{Pauses: []pause.Pause{on(pause.All, "", 0)}}, want: Paused, reason: "paused: everything: holidays"},
		"a pause comes before shedding": {priority: PriorityLow, deferred: true, state: State{Saturated: true, Pauses: []pause.Pause{on(pause.All, "", time.Minute)}}, want: Paused, at: time.Minute, puts: true, reason: "paused: everything until 2026-03-29T12:01:00Z: holidays"},

		"woken just now":              {state: State{LastWake: now}, want: Deferred, at: 5 * time.Second, reason: "the agent was woken a moment ago"},
		"woken almost 5 s ago":        {state: State{LastWake: ago(5*time.Second - ms)}, want: Deferred, at: ms, reason: "the agent was woken a moment ago"},
		"woken 5 s ago":               {state: State{LastWake: ago(5 * time.Second)}, want: Run},
		"woken in a moment":           {state: State{LastWake: now.Add(time.Second)}, want: Deferred, at: 6 * time.Second, reason: "the agent was woken a moment ago"},
		"woken in 5 s":                {state: State{LastWake: now.Add(5 * time.Second)}, want: Run},
		"woken in an hour":            {state: State{LastWake: now.Add(time.Hour)}, want: Run},
		"stale and woken just now":    {late: time.Hour, miss: "skip", state: State{LastWake: now}, want: Dropped, reason: "stale-skip: its time passed 1h0m0s ago; on_miss is skip"},
		"woken just now, and no lane": {priority: PriorityLow, state: State{LastWake: now, Saturated: true}, want: Deferred, at: 5 * time.Second, reason: "the agent was woken a moment ago"},

		"no lane, not low, again":   {state: State{Saturated: true}, priority: "normal", deferred: true, want: Run, puts: true},
		"no lane":                   {state: State{Saturated: true}, priority: "normal", want: Run},
		"no lane, low":              {state: State{Saturated: true}, priority: low.Quote("low"), want: Deferred, at: time.Duration(low.Number("5")) * time.Minute, puts: true, reason: "its priority is low, and every lane is taken"},
		"no lane, low, again":       {state: State{Saturated: true}, priority: low.Quote("low"), deferred: true, want: Dropped, puts: true, reason: low.Quote("shed") + ": its priority is low, and every lane was taken twice"},
		"a lane, low":               {priority: PriorityLow, want: Run},
		"a lane, low, again":        {priority: PriorityLow, deferred: true, want: Run, puts: true},
		"no lane, low, late":        {late: time.Hour, miss: "run_once", state: State{Saturated: true}, priority: PriorityLow, want: Deferred, at: 5 * time.Minute, puts: true, reason: "its priority is low, and every lane is taken"},
		"no lane, low, stale, skip": {late: time.Hour, miss: "skip", state: State{Saturated: true}, priority: PriorityLow, want: Dropped, reason: "stale-skip: its time passed 1h0m0s ago; on_miss is skip"},
	} {
		s := Wake{ID: 7, Agent: "a", At: ago(c.late), Priority: c.priority, OnMiss: c.miss, Deferred: c.deferred}
		d := Decide(now, s, c.state)
		var at time.Time
		if c.at != 0 {
			at = now.Add(c.at)
		}
		if d.Decision != c.want || !d.At.Equal(at) || d.Wake.Deferred != c.puts || d.Reason != c.reason || d.Run != 0 || d.Wake.ID != 7 || !d.Wake.At.Equal(s.At) {
			t.Errorf("%s: %+v, want %s at %s: %q", name, d, c.want, at, c.reason)
		}
	}
}
