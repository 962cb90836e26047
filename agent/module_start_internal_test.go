package agent

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"rouse/agent/loop"
	"rouse/agent/permit"
	"rouse/agent/plan"
	"rouse/agent/tool"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/label"
	"rouse/internal/ledger/runs"
	"rouse/skills"
)

// TestCallStartsRun checks OSL-12 and OSL-32: a skill that continues by itself is a run of its own,
// once for each call. The run has the agent and the labels of the caller, and stays within the
// bounds of the job that began its chain. It cannot start another run.
func TestCallStartsRun(t *testing.T) {
	t.Parallel()
	l, err := ledger.Open(t.Context(), ledger.Options{Path: filepath.Join(t.TempDir(), "ledger.db")})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()

	accepted, err := l.Enqueue(t.Context(), ledger.Request{Job: "ask", Agent: "clerk", Trigger: domain.TriggerManual})
	if err != nil {
		t.Fatal(err)
	}
	run, a, err := l.StartAttempt(t.Context(), accepted[0].Run)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Labels.RecordTaint(t.Context(), a, label.TaintUpdate{Taint: "AB"}); err != nil {
		t.Fatal(err)
	}

	r := &moduleRunner{ledger: l}
	plan := plan.Active{Plan: plan.Plan{
		Agents:  map[string]plan.Agent{"clerk": {Name: "clerk", Bounds: loop.Bounds{Calls: 50}}},
		Jobs:    map[string]plan.Job{"ask": {Name: "ask", Agent: "clerk", Prompt: "x", Bounds: loop.Bounds{Calls: 7}, Notify: plan.Notify{On: []string{"error"}, Channels: []string{"mail"}}}},
		Modules: map[string]*skills.Skill{"trips": {Name: "trips", Manifest: &skills.Manifest{}}},
	}}
	caller, err := plan.Resolve(run)
	if err != nil {
		t.Fatal(err)
	}

	calls := &moduleCalls{runner: r, task: newAttempt(caller, ledger.Attempt{})}
	start := func(c *moduleCalls, key string) (startedRun, tool.Envelope) {
		t.Helper()
		e, err := c.start(t.Context(), tool.Invocation{Run: run.ID, Key: key}, plan.Modules["trips"], json.RawMessage(`{"to": "x"}`))
		if err != nil {
			t.Fatal(err)
		}
		var out startedRun
		if e.OK {
			if err := json.Unmarshal(e.Result, &out); err != nil {
				t.Fatal(err)
			}
		}
		return out, e
	}

	first, _ := start(calls, "m1.1.1")
	again, _ := start(&moduleCalls{runner: r, task: newAttempt(caller, ledger.Attempt{})}, "m1.1.1")
	other, _ := start(calls, "m1.1.2")
	if first.Run == "" || again.Run != first.Run || other.Run == first.Run || first.State != domain.StateQueued {
		t.Errorf("%+v, again %+v, another one %+v", first, again, other)
	}

	all, err := l.Runs.List(t.Context(), runs.Filter{Agent: "clerk", Limit: 10})
	if err != nil || len(all) != 3 {
		t.Fatalf("%d runs (%v)", len(all), err)
	}
	child := all[1]
	of, err := plan.Resolve(child)
	if err != nil || child.Agent != "clerk" || child.Job != "" || child.Taint != "AB" || of.Job.Skill.Name != "trips" || string(of.Detail.SkillInput) != `{"to":"x"}` {
		t.Errorf("%+v %+v (%v)", child, of.Detail, err)
	}
	if permit.Bounds(of).Calls != 7 || of.Notify.Channels[0] != "mail" || !of.Unattended {
		t.Errorf("bounds %+v, told %+v", permit.Bounds(of), of.Notify)
	}

	if _, e := start(&moduleCalls{runner: r, task: newAttempt(of, ledger.Attempt{})}, "m1.1.1"); e.OK || e.Kind != tool.KindRejected {
		t.Errorf("a further one: %+v", e)
	}
	calls.started = maxStarted
	if _, e := start(calls, "m1.1.3"); e.OK || !strings.Contains(e.Message, "at most") {
		t.Errorf("too many: %+v", e)
	}
}
