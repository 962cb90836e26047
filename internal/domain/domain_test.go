package domain_test

import (
	"testing"

	"rouse/internal/domain"
)

func TestOutcome(t *testing.T) {
	t.Parallel()
	for outcome, want := range map[domain.Outcome]struct{ done, failed bool }{
		domain.OutcomeSuccess:     {done: true},
		domain.OutcomeNothing:     {done: true},
		domain.OutcomePartial:     {done: true},
		domain.OutcomeError:       {failed: true},
		domain.OutcomeTimeout:     {failed: true},
		domain.OutcomeBudget:      {failed: true},
		domain.OutcomeCancelled:   {},
		domain.OutcomeInterrupted: {},
		domain.OutcomeSkipped:     {},
		"":                        {}, // not finished
	} {
		if done, failed := outcome.Done(), outcome.Failed(); done != want.done || failed != want.failed {
			t.Errorf("%s: done %t, failed %t", outcome, done, failed)
		}
	}
}
