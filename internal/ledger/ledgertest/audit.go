package ledgertest

import (
	"testing"

	"rouse/internal/ledger"
	"rouse/internal/ledger/integrity"
)

// sketched are tests that record less of a run than an agent does: calls without their step, or a use that is
// not that of the steps. The check is not made of those.
var sketched = map[string]string{"Infos": "call-step", "WorkspaceReview": "call-step", "Interrupt": "call-step", "Budget": "spent-run", "InterruptedUsage": "spent-run"}

// Audited holds what a test has left to all that can be proved of a ledger, whatever the test was about.
func Audited(t *testing.T, l *ledger.Ledger) {
	t.Helper()
	audited(t, l, "")
}

// audited is Audited without one of the checks.
func audited(t *testing.T, l *ledger.Ledger, except string) {
	t.Helper()
	if t.Failed() || t.Skipped() {
		return
	}

	made := map[string]bool{}
	ok(t, integrity.Audit(t.Context(), l.DB, l.Blobs, integrity.Options{
		Begin: func(c integrity.Check) { made[c.Name] = true },
		Found: func(v integrity.Violation) error {
			if !v.Clock && v.Check != except { // tests set clocks as they like
				t.Errorf("audit: %s: %s", v.Check, v.Text)
			}
			return nil
		},
	}))
	if len(made) != len(integrity.Checks()) {
		t.Errorf("audit: %d checks were made of %d", len(made), len(integrity.Checks()))
	}
}
