package ledger

import (
	"testing"

	"rouse/internal/domain"
)

// TestDecideDue checks the decision about a due time that overlaps other runs of its job. The
// conformance suite tests pauses.
func TestDecideDue(t *testing.T) {
	queued, running := Run{ID: 1, State: domain.StateQueued}, Run{ID: 2, State: domain.StateRunning}
	waiting := func(what domain.Wait) []Run { return []Run{{ID: 3, State: domain.StateWaiting, WaitingFor: what}} }
	const (
		run     = domain.DecisionRun
		skipped = domain.DecisionSkipped
	)
	for _, c := range []struct {
		policy   domain.Overlap
		others   []Run
		decision domain.Decision
		reason   string
		replaces bool
	}{
		{domain.OverlapAllow, nil, run, "late", false}, {domain.OverlapAllow, []Run{queued}, run, "late", false},
		{domain.OverlapSkip, nil, run, "late", false}, {domain.OverlapSkip, []Run{queued}, skipped, "overlap: run 1 is still queued", false}, {domain.OverlapSkip, []Run{running}, skipped, "overlap: run 2 is still running", false},
		{domain.OverlapSkip, waiting(domain.WaitInput), skipped, "overlap: run 3 waits for an answer", false}, {domain.OverlapSkip, waiting(domain.WaitApproval), skipped, "overlap: run 3 waits for an approval", false},
		{domain.OverlapSkip, waiting(domain.WaitPause), skipped, "overlap: run 3 is paused by its skill", false}, {domain.OverlapSkip, waiting(domain.WaitRetry), skipped, "overlap: run 3 waits for its next attempt", false},
		{domain.OverlapSkip, waiting(domain.WaitResume), skipped, "overlap: run 3 waits to go on", false}, {domain.OverlapCancel, waiting(domain.WaitInput), run, "late", true},
		{domain.OverlapQueueOne, nil, run, "late", false}, {domain.OverlapQueueOne, []Run{running}, run, "late", false}, {domain.OverlapQueueOne, []Run{queued}, skipped, "overlap: run 1 is already queued", false},
		{domain.OverlapCancel, nil, run, "late", false}, {domain.OverlapCancel, []Run{queued, running}, run, "late", true},
	} {
		decision, reason, replaces := DecideDue(Due{Job: "j", Overlap: c.policy, Reason: "late"}, c.others, nil)
		if decision != c.decision || reason != c.reason || replaces != c.replaces {
			t.Errorf("%s beside %+v: %s, %q, replaces %t, want %s, %q, %t", c.policy, c.others, decision, reason, replaces, c.decision, c.reason, c.replaces)
		}
	}
}
