package watcher

import (
	"testing"

	"rouse/internal/domain"
	"rouse/internal/ledger/claim"
)

// TestElsewhere checks that a folder that another node watches is left to that node, with its files
// and its records.
func TestElsewhere(t *testing.T) {
	t.Parallel()
	d := newHarness(t)
	d.w.elsewhere = func(job string) bool { return job == "theirs" }
	c := d.run(Watch{Job: "theirs"}, d.write("inbox/a.csv", "1"), domain.OutcomeSuccess)
	d.must(d.w.ledger.Watches.Save(t.Context(), claim.WatchState{Job: "theirs", Fingerprint: "f"}, claim.WatchState{Job: "gone", Fingerprint: "f"}))

	d.must(d.w.Set(t.Context(), nil))
	if got := d.applyAfter(c); got.After != claim.AfterPending {
		t.Errorf("their file: %+v", got)
	}
	known, err := d.w.ledger.Watches.States(t.Context())
	if err != nil || known["theirs"].Fingerprint == "" || known["gone"].Fingerprint != "" {
		t.Errorf("what is recorded: %+v, %v", known, err)
	}

	d.w.elsewhere = func(string) bool { return false }
	if got := d.applyAfter(c); got.After != claim.AfterLeft {
		t.Errorf("nobody's file: %+v", got)
	}
}
