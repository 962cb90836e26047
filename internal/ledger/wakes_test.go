package ledger

import (
	"testing"
	"time"

	"rouse/internal/contract"
	"rouse/internal/domain"
)

// TestDecideWake checks what becomes of a wake that is due (OSA-75, OSA-78, C-2).
func TestDecideWake(t *testing.T) {
	row, low := contract.Of(t, "OSA-75"), contract.Of(t, "C-2")
	late, miss := time.Duration(row.Number("5"))*time.Minute, func(literal string) domain.OnMiss { return domain.OnMiss(row.Quote(literal)) }
	now := time.Date(2026, 3, 29, 12, 0, 0, 0, time.UTC)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	on := func(scope, name string, until time.Duration) Pause {
		p := Pause{Scope: scope, Name: name, Since: ago(time.Hour), Reason: "holidays"}
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
		state    WakeState
		want     string
		at       time.Duration // from now; 0: none
		puts     bool          // is deferred afterwards
		reason   string
	}{
		"in time":                    {want: WakeRun},
		"before its time":            {late: -ms, want: WakeDeferred, at: ms, reason: "its time has not come"},
		"before its time and paused": {late: -time.Hour, state: WakeState{Pauses: []Pause{on(PauseAll, "", 0)}}, want: WakeDeferred, at: time.Hour, reason: "its time has not come"},
		"five minutes late":          {late: late, miss: "skip", want: WakeRun},
		"stale, skip":                {late: stale, miss: miss("skip"), want: WakeDropped, reason: row.Quote("stale-skip") + ": its time passed 5m0s ago; on_miss is skip"},
		"stale, run_once":            {late: stale, miss: miss("run_once"), want: WakeRun, reason: "5m0s late; on_miss is run_once"},
		"stale, run_catchup":         {late: 48 * time.Hour, miss: miss("run_catchup"), want: WakeRun, reason: "48h0m0s late; on_miss is run_catchup"},

		"paused":                        {state: WakeState{Pauses: []Pause{on(PauseAgent, "a", time.Hour)}}, want: WakePaused, at: time.Hour, reason: "paused: agent a until 2026-03-29T13:00:00Z: holidays"},
		"everything is paused":          {state: WakeState{Pauses: []Pause{on(PauseAll, "", 0)}}, want: WakePaused, reason: "paused: everything: holidays"},
		"paused until now":              {state: WakeState{Pauses: []Pause{on(PauseAgent, "a", -ms)}}, want: WakeRun},
		"a pause that ends now":         {state: WakeState{Pauses: []Pause{{Scope: PauseAgent, Name: "a", Since: ago(time.Hour), Until: now}}}, want: WakeRun},
		"another agent is paused":       {state: WakeState{Pauses: []Pause{on(PauseAgent, "b", 0)}}, want: WakeRun},
		"a job of its name is paused":   {state: WakeState{Pauses: []Pause{on(PauseJob, "a", 0), on(PauseJob, "", 0)}}, want: WakeRun},
		"a pause outlasts staleness":    {late: 48 * time.Hour, miss: "skip", state: WakeState{Pauses: []Pause{on(PauseAll, "", 0)}}, want: WakePaused, reason: "paused: everything: holidays"},
		"a pause comes before shedding": {priority: PriorityLow, deferred: true, state: WakeState{Saturated: true, Pauses: []Pause{on(PauseAll, "", time.Minute)}}, want: WakePaused, at: time.Minute, puts: true, reason: "paused: everything until 2026-03-29T12:01:00Z: holidays"},

		"woken just now":              {state: WakeState{LastWake: now}, want: WakeDeferred, at: 5 * time.Second, reason: "the agent was woken a moment ago"},
		"woken almost 5 s ago":        {state: WakeState{LastWake: ago(5*time.Second - ms)}, want: WakeDeferred, at: ms, reason: "the agent was woken a moment ago"},
		"woken 5 s ago":               {state: WakeState{LastWake: ago(5 * time.Second)}, want: WakeRun},
		"woken in a moment":           {state: WakeState{LastWake: now.Add(time.Second)}, want: WakeDeferred, at: 6 * time.Second, reason: "the agent was woken a moment ago"},
		"woken in 5 s":                {state: WakeState{LastWake: now.Add(5 * time.Second)}, want: WakeRun},
		"woken in an hour":            {state: WakeState{LastWake: now.Add(time.Hour)}, want: WakeRun},
		"stale and woken just now":    {late: time.Hour, miss: "skip", state: WakeState{LastWake: now}, want: WakeDropped, reason: "stale-skip: its time passed 1h0m0s ago; on_miss is skip"},
		"woken just now, and no lane": {priority: PriorityLow, state: WakeState{LastWake: now, Saturated: true}, want: WakeDeferred, at: 5 * time.Second, reason: "the agent was woken a moment ago"},

		"no lane, not low, again":   {state: WakeState{Saturated: true}, priority: "normal", deferred: true, want: WakeRun, puts: true},
		"no lane":                   {state: WakeState{Saturated: true}, priority: "normal", want: WakeRun},
		"no lane, low":              {state: WakeState{Saturated: true}, priority: low.Quote("low"), want: WakeDeferred, at: time.Duration(low.Number("5")) * time.Minute, puts: true, reason: "its priority is low, and every lane is taken"},
		"no lane, low, again":       {state: WakeState{Saturated: true}, priority: low.Quote("low"), deferred: true, want: WakeDropped, puts: true, reason: low.Quote("shed") + ": its priority is low, and every lane was taken twice"},
		"a lane, low":               {priority: PriorityLow, want: WakeRun},
		"a lane, low, again":        {priority: PriorityLow, deferred: true, want: WakeRun, puts: true},
		"no lane, low, late":        {late: time.Hour, miss: "run_once", state: WakeState{Saturated: true}, priority: PriorityLow, want: WakeDeferred, at: 5 * time.Minute, puts: true, reason: "its priority is low, and every lane is taken"},
		"no lane, low, stale, skip": {late: time.Hour, miss: "skip", state: WakeState{Saturated: true}, priority: PriorityLow, want: WakeDropped, reason: "stale-skip: its time passed 1h0m0s ago; on_miss is skip"},
	} {
		s := Wake{ID: 7, Agent: "a", At: ago(c.late), Priority: c.priority, OnMiss: c.miss, Deferred: c.deferred}
		d := DecideWake(now, s, c.state)
		var at time.Time
		if c.at != 0 {
			at = now.Add(c.at)
		}
		if d.Decision != c.want || !d.At.Equal(at) || d.Wake.Deferred != c.puts || d.Reason != c.reason || d.Run != 0 || d.Wake.ID != 7 || !d.Wake.At.Equal(s.At) {
			t.Errorf("%s: %+v, want %s at %s: %q", name, d, c.want, at, c.reason)
		}
	}
}
