package agent_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"rouse/agent/model/playbook"
	"rouse/agent/plan"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/incident"
)

// failing returns a plan with a job that reports failures on three channels, which group them in
// different ways.
func failing(t *testing.T, on ...string) *bench {
	t.Helper()
	b := setup(t)
	b.plan.Jobs["j"] = plan.Job{Name: "j", Agent: "clerk", Notify: plan.Notify{On: on, Channels: []string{"usual", "each", "first"}}}
	b.plan.Groups = map[string]plan.Group{"each": {Every: 1, Recovery: true}, "first": {}}
	b.runner.Set(b.plan)
	return b
}

var failedRun = ledger.Run{ID: 7, Job: "j", Agent: "clerk", Attempt: 1}

// tellTimes lets an incident grow, and returns the number of notices for each channel.
func tellTimes(b *bench, i incident.Incident, failures int) map[string]int {
	out := map[string]int{}
	for i.Failures = 1; i.Failures <= failures; i.Failures++ {
		tell := b.runner.Notices.EndNotices(failedRun, ledger.Result{Outcome: domain.OutcomeError, Error: "no such table"})
		for _, n := range tell.For(incident.Change{Failed: &i}) {
			out[n.Channel]++
		}
	}
	return out
}

// TestFailuresAreGathered checks that ten thousand failures send the first notice and every tenth,
// as each channel requests. After an acknowledgement there are no more notices.
func TestFailuresAreGathered(t *testing.T) {
	t.Parallel()
	b := failing(t, "error")
	i := incident.Incident{ID: 3, Job: "j", Kind: "x", OpenedAt: time.Now()}
	if got, want := fmt.Sprint(tellTimes(b, i, 10_000)), "map[each:10000 first:1 usual:1001]"; got != want {
		t.Errorf("told %s, want %s", got, want)
	}
	i.AckedAt = time.Now()
	if got := tellTimes(b, i, 100); len(got) != 0 {
		t.Errorf("of one that is known: %v", got)
	}

	// A job without notices for this outcome is counted, but sends no notice.
	if got := tellTimes(failing(t, "timeout"), incident.Incident{ID: 3}, 20); len(got) != 0 {
		t.Errorf("of an outcome that nobody wants to hear of: %v", got)
	}
}

// TestFailureWords checks that a notice contains the number to acknowledge and the next notice.
// From the second notice on, it also contains the number of failures.
func TestFailureWords(t *testing.T) {
	t.Parallel()
	b := failing(t, "error")
	for failures, want := range map[int][2]string{
		1:  {"j: error", "no such table\nrouse show 7\nNext message at failure 10. To hear no more until it recovers: rouse ack 3"},
		10: {"j: error (10 times)", "no such table\nrouse show 7\n10 runs failed like this since 2026-11-24 14:02 UTC\nNext message at failure 20. To hear no more until it recovers: rouse ack 3"},
	} {
		i := incident.Incident{ID: 3, Job: "j", Failures: failures, OpenedAt: time.Date(2026, 11, 24, 14, 2, 0, 0, time.UTC)}
		n := b.runner.Notices.EndNotices(failedRun, ledger.Result{Outcome: domain.OutcomeError, Error: "no such table"}).For(incident.Change{Failed: &i})
		if len(n) == 0 || n[0].Title != want[0] || n[0].Body != want[1] {
			t.Errorf("failure %d: %+v", failures, n)
		}
	}
}

// TestRecoveryIsTold checks that the notice of a success reports the recovery. If there is no such
// notice, a separate notice goes to the channels that want it, provided that a failure was
// reported, acknowledged or not.
func TestRecoveryIsTold(t *testing.T) {
	t.Parallel()
	was := incident.Incident{ID: 3, Job: "j", Kind: "x", Error: "no such\ntable", Failures: 12, Told: 2, AckedAt: time.Now(), OpenedAt: time.Date(2026, 11, 24, 14, 2, 0, 0, time.UTC)}
	silent := was
	silent.Told = 0
	for _, c := range []struct {
		on       string
		closed   []incident.Incident
		channels string
		title    string
	}{
		{"error", []incident.Incident{was}, "usual each", "j has recovered"},
		{"error", []incident.Incident{silent}, "", ""},
		{"error", nil, "", ""},
		{"success", []incident.Incident{silent, was}, "usual each first", "j: success"},
	} {
		tell := failing(t, c.on).runner.Notices.EndNotices(failedRun, ledger.Result{Outcome: domain.OutcomeSuccess, Summary: "done"})
		var channels []string
		for _, n := range tell.For(incident.Change{Recovered: c.closed}) {
			channels = append(channels, n.Channel)
			if n.Title != c.title || !strings.Contains(n.Body, "incident 3 is over: x (no such table), 12 failed runs since 2026-11-24 14:02 UTC") || n.Key == "" {
				t.Errorf("%+v: %+v", c, n)
			}
		}
		if got := strings.Join(channels, " "); got != c.channels {
			t.Errorf("%+v: told %q", c, got)
		}
	}
}

// TestErrorKinds checks that the kind of an error depends on its source and cause, not on its
// details.
func TestErrorKinds(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, c := range []struct{ job, kind string }{{"missing", "file_read not_found"}, {"unmet", "expectation"}} {
		for range 2 {
			b.plan.Jobs["missing"] = plan.Job{Name: "missing", Agent: "clerk", Playbook: []playbook.Call{{Name: "file_read", With: map[string]any{"path": "not-there"}}}}
			b.plan.Jobs["unmet"] = plan.Job{Name: "unmet", Agent: "clerk", Playbook: []playbook.Call{{Name: "complete", With: map[string]any{"summary": "12 files were copied to the disk"}}}, Expect: []plan.Expectation{{File: b.dir + "/none", Where: "x:1"}}}
			res := b.run(b.enqueue(ledger.Request{Job: c.job, Agent: "clerk"}))
			if res.Outcome != domain.OutcomeError || res.Kind != c.kind {
				t.Errorf("%s: %+v", c.job, res)
			}
		}
	}

	b.plan.Jobs = map[string]plan.Job{}
	if res := b.run(b.enqueue(ledger.Request{Job: "gone", Agent: "clerk"})); res.Kind != "not configured" {
		t.Errorf("a job that is gone: %+v", res)
	}
}
