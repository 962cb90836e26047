package ledgertest

import (
	"testing"

	"rouse/internal/ledger"
	"rouse/internal/ledger/integrity"
)

// sketched maps tests that record incomplete runs to the audit check that is skipped for them. They
// record calls without steps, or a usage that does not match the steps.
var sketched = map[string]string{"Infos": "call-step", "WorkspaceReview": "call-step", "Interrupt": "call-step", "Budget": "spent-run", "InterruptedUsage": "spent-run"}

// Audited runs all audit checks on the ledger that a test leaves.
func Audited(t *testing.T, l *ledger.Ledger) {
	t.Helper()
	audited(t, l, "")
}

// audited runs all audit checks except one.
func audited(t *testing.T, l *ledger.Ledger, except string) {
	t.Helper()
	if t.Failed() || t.Skipped() {
		return
	}

	made := map[string]bool{}
	ok(t, integrity.Audit(t.Context(), l.DB, l.Blobs, integrity.Options{
		Begin: func(c integrity.Check) { made[c.Name] = true },
		Found: func(v integrity.Violation) error {
			if !v.Clock && v.Check != except { // tests set the clock freely
				t.Errorf("audit: %s: %s", v.Check, v.Text)
			}
			return nil
		},
	}))
	if len(made) != len(integrity.Checks()) {
		t.Errorf("audit: %d checks were made of %d", len(made), len(integrity.Checks()))
	}
}
