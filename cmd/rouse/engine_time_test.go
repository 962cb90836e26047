package main

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"rouse/agentdb/ledger"
	"rouse/cmd/internal/web"
)

// When a pause ends, as it was asked for at Saturday noon in Berlin.
func TestPauseEnd(t *testing.T) {
	t.Parallel()
	zone, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, zone)
	for name, c := range map[string]struct {
		ask  web.PauseAsk
		want string // RFC 3339, or a part of the error
	}{
		"nobody knows":     {web.PauseAsk{}, "0001-01-01T00:00:00Z"},
		"hours":            {web.PauseAsk{For: "4h"}, "2026-11-21T15:00:00Z"},
		"days":             {web.PauseAsk{For: "7d"}, "2026-11-28T11:00:00Z"},
		"tomorrow":         {web.PauseAsk{Until: "tomorrow"}, "2026-11-21T23:00:00Z"},
		"later today":      {web.PauseAsk{Until: "12:01"}, "2026-11-21T11:01:00Z"},
		"tomorrow by time": {web.PauseAsk{Until: "12:00"}, "2026-11-22T11:00:00Z"},
		"both":             {web.PauseAsk{For: "4h", Until: "tomorrow"}, "not both"},
		"no time":          {web.PauseAsk{For: "0s"}, "would be none"},
		"for ever":         {web.PauseAsk{For: "100000d"}, "2300-09-06T11:00:00Z"},
		"today":            {web.PauseAsk{Until: "2026-11-21"}, "Sat 2026-11-21 00:00 CET has passed: it is Sat 2026-11-21 12:00 CET; for the rest of today write tomorrow"},
		"yesterday":        {web.PauseAsk{Until: "2026-11-20"}, "00:00 CET has passed: it is Sat 2026-11-21 12:00 CET"},
		"now":              {web.PauseAsk{Until: "2026-11-21T12:00:00+01:00"}, "has passed"},
		"no number":        {web.PauseAsk{For: "NaNd"}, "is not a length of time"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := pauseEnd(c.ask, now, zone)
			if err != nil {
				if !strings.Contains(err.Error(), c.want) {
					t.Errorf("%v, want %s", err, c.want)
				}
				return
			}
			if text := got.UTC().Format(time.RFC3339); text != c.want {
				t.Errorf("%s, want %s", text, c.want)
			}
		})
	}
}

// What programs send is checked as what people type.
func TestTimeRequests(t *testing.T) {
	t.Parallel()
	p := newPast(t, hourly)
	s, err := (&place{config: p.config}).open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	for _, c := range []struct{ path, body, want string }{
		{"/v1/pauses", `{"scope":"everything"}`, "scope must be job, agent or all"},
		{"/v1/pauses", `{"scope":"all","name":"hourly"}`, `scope all has no name, and "hourly" was given`},
		{"/v1/pauses", `{"scope":"job"}`, "name the job"},
		{"/v1/pauses", `{"scope":"job","name":"hourly","because":"x"}`, "unknown field"},
		{"/v1/pauses", `{"scope":"job","name":"houly"}`, `did you mean "hourly"`},
		{"/v1/pauses/end", `{"scope":"agent"}`, "name the agent"},
		{"/v1/slots", `{"in":"1h"}`, "name the agent"},
		{"/v1/slots", `{"agent":"clerk","in":"1h","at":"08:00"}`, "not both"},
		{"/v1/slots", `{"agent":"clerk","in":"1h","instructions":"x"}`, "self_scheduling is off for the agent clerk"},
		{"/v1/slots", `{"agent":"away","in":"1h","instructions":"x"}`, "the agent away is disabled"},
		{"/v1/slots/clear", `{}`, "name the agent"},
	} {
		err := s.Post(t.Context(), c.path, json.RawMessage(c.body), &struct{}{})
		var answer *web.Error
		if !errors.As(err, &answer) || answer.Status >= 500 || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %s: %v, want %q", c.path, c.body, err, c.want)
		}
	}
	for path, want := range map[string]string{"/v1/why": "name the job", "/v1/slots": ""} {
		var out any
		if err := s.Get(t.Context(), path, nil, &out); (err == nil) != (want == "") || (err != nil && !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// Runs that wait for their time are to come as well.
func TestNextOfDelayedRuns(t *testing.T) {
	t.Parallel()
	p := newPast(t, hourly)
	now := time.Now()
	reqs := []ledger.Request{
		{Job: "hourly", Agent: "clerk", Trigger: ledger.TriggerSchedule, Key: "1", Detail: ledger.Detail{Source: "cron"}, ScheduledAt: now.Add(-time.Second), NotBefore: now.Add(20 * time.Second)},
		{Job: "hourly", Agent: "clerk", Trigger: ledger.TriggerWatch, Key: "2"},
	}
	accepted, err := p.l.Enqueue(t.Context(), reqs...)
	if err != nil {
		t.Fatal(err)
	}
	p.end(accepted[1].Run, ledger.Result{Outcome: ledger.OutcomeError, RetryAt: now.Add(10 * time.Second)})
	var next []web.Occurrence
	read := func() {
		t.Helper()
		if err := json.Unmarshal([]byte(p.says("next", "hourly", "-n", "3", "--json")), &next); err != nil || len(next) != 3 {
			t.Fatalf("%v %+v", err, next)
		}
	}
	read()
	if o := next[0]; o.Source != "retry" || o.Run != "2" || o.Reason != "attempt 2 of run 2" || o.Decision != "run" {
		t.Errorf("%+v", o)
	}
	if o := next[1]; o.Source != "cron" || o.Run != "1" || !strings.HasPrefix(o.Reason, "run 1, held back for 21s by jitter") {
		t.Errorf("%+v", o)
	}
	p.wants(p.says("why", "hourly"), "2 ? waiting: retry", "attempt 1 failed", "the next is due")
	p.says("pause", "hourly")
	read()
	if o := next[0]; !strings.Contains(o.Reason, "waits for the end of the pause: paused") {
		t.Errorf("%+v", o)
	}
	p.wants(p.says("jobs"), "paused")
}
