package ledger_test

import (
	"testing"

	"rouse/agentdb/ledger"
	"rouse/agentdb/ledger/ledgertest"
)

func TestWatches(t *testing.T) {
	ledgertest.Watches(t, func(t *testing.T) ledgertest.Open {
		dir := t.TempDir()
		return func(t *testing.T) *ledger.Ledger { return openIn(t, dir) }
	})
}
