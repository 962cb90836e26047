package plan

import (
	"errors"
	"fmt"

	"rouse/internal/domain"
	"rouse/internal/ledger"
)

// Failed returns the result of a run that failed.
func Failed(outcome domain.Outcome, format string, args ...any) ledger.Result {
	return ledger.Result{Outcome: outcome, Exit: domain.ExitEnded, Error: fmt.Sprintf(format, args...)}
}

// EarlyEnd is the error of an attempt that ends before its loop begins. It holds the result of the
// run.
type EarlyEnd struct{ ledger.Result }

func (e *EarlyEnd) Error() string { return "the run ends before it begins: " + e.Result.Error }

// EndEarly returns an EarlyEnd with a failed result.
func EndEarly(outcome domain.Outcome, format string, args ...any) error {
	return &EarlyEnd{Failed(outcome, format, args...)}
}

// ResultOf returns the result if err is an EarlyEnd. Otherwise it returns err.
func ResultOf(err error) (ledger.Result, error) {
	if e, ok := errors.AsType[*EarlyEnd](err); ok {
		return e.Result, nil
	}
	return ledger.Result{}, err
}
