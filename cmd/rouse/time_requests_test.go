package main

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"rouse/cmd/internal/api"
	"rouse/internal/domain"
	"rouse/internal/ledger"
)

// TestTimeRequests checks that API requests are validated in the same way as command lines.
func TestTimeRequests(t *testing.T) {
	t.Parallel()
	p := newPast(t, hourly)
	s, err := (&cli{config: p.config}).connect(t.Context(), toChange)
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
		var answer *api.Error
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

// TestNextOfDelayedRuns checks that delayed runs are listed as upcoming.
func TestNextOfDelayedRuns(t *testing.T) {
	t.Parallel()
	p := newPast(t, hourly)
	now := time.Now()
	reqs := []ledger.Request{
		{Job: "hourly", Agent: "clerk", Trigger: domain.TriggerSchedule, Key: "1", Detail: ledger.TriggerDetail{Source: "cron"}, ScheduledAt: now.Add(-time.Second), NotBefore: now.Add(20 * time.Second)},
		{Job: "hourly", Agent: "clerk", Trigger: domain.TriggerWatch, Key: "2"},
	}
	accepted, err := p.l.Enqueue(t.Context(), reqs...)
	if err != nil {
		t.Fatal(err)
	}

	p.end(accepted[1].Run, ledger.Result{Outcome: domain.OutcomeError, RetryAt: now.Add(10 * time.Second)})
	var next []api.Occurrence
	read := func() {
		t.Helper()
		next = nil // decoding into the old slice would keep Run of an earlier entry
		if err := json.Unmarshal([]byte(p.says("next", "hourly", "-n", "4", "--json")), &next); err != nil || len(next) != 4 {
			t.Fatalf("%v %+v", err, next)
		}

		// Near the end of an hour, the instant of the hourly job comes first.
		next = slices.DeleteFunc(next, func(o api.Occurrence) bool { return o.Run == "" })
	}

	read()
	if o := next[0]; o.Source != "cron" || o.Run != "1" || !strings.HasPrefix(o.Reason, "run 1, held back: jitter of 21s") {
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
