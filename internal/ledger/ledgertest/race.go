package ledgertest

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/claim"
	"rouse/internal/ledger/runs"
)

// race tests two processes on one database that make the same changes concurrently. One succeeds,
// the other gets a proper error, and no database error is returned.
func race(t *testing.T, open Open) {
	two := [2]*ledger.Ledger{open(t), open(t)}
	at := time.Unix(1_700_000_000, 0).UTC()
	for i := range 30 {
		req := manual("j")
		req.Key = fmt.Sprint("key ", i)
		run := raceEnqueue(t, two, req)
		raceEnqueue(t, two, ledger.Request{Job: "w", Agent: "a", Trigger: domain.TriggerWatch,
			Claim: &claim.Claim{Job: "w", Path: "/in", Hash: fmt.Sprint(i)}})
		raceAttempt(t, two, run)
		raceDue(t, two, due("s", at.Add(time.Duration(i)*time.Minute), "cancel_previous"))
	}
}

// atOnce calls do for both ledgers concurrently.
func atOnce(two [2]*ledger.Ledger, do func(i int, l *ledger.Ledger) error) (errs [2]error) {
	var all sync.WaitGroup
	for i, l := range two {
		all.Go(func() { errs[i] = do(i, l) })
	}
	all.Wait()
	return errs
}

func raceEnqueue(t *testing.T, two [2]*ledger.Ledger, req ledger.Request) int64 {
	t.Helper()
	var got [2]ledger.Accepted
	for _, err := range atOnce(two, func(i int, l *ledger.Ledger) error {
		a, err := l.Enqueue(t.Context(), req)
		if err == nil {
			got[i] = a[0]
		}
		return err
	}) {
		ok(t, err)
	}
	if got[0].New == got[1].New || got[0].Run != got[1].Run {
		t.Errorf("%s was not accepted once: %+v", req.Trigger, got)
	}

	return got[0].Run
}

// raceAttempt starts a run twice and then ends its attempt in two ways.
func raceAttempt(t *testing.T, two [2]*ledger.Ledger, run int64) {
	t.Helper()
	var attempts [2]ledger.Attempt
	errs := atOnce(two, func(i int, l *ledger.Ledger) (err error) {
		_, attempts[i], err = l.StartAttempt(t.Context(), run)
		return err
	})
	if !oneLost(errs, ledger.ErrNotClaimable) {
		t.Fatalf("a run was not started once: %v", errs)
	}

	a := attempts[0]
	if errs[0] != nil {
		a = attempts[1]
	}

	// One process ends the attempt as successful, the other as interrupted.
	errs = atOnce(two, func(i int, l *ledger.Ledger) error {
		if i == 0 {
			return l.Finish(t.Context(), a, ledger.Result{Outcome: domain.OutcomeSuccess})
		}
		return l.Interrupt(t.Context(), a, "its host was lost", nil)
	})
	if !oneLost(errs, ledger.ErrFenced) {
		t.Fatalf("an attempt did not end once: %v", errs)
	}
	if r := get(t, two[0], run); (errs[0] == nil) != (r.State == domain.StateFinished) {
		t.Errorf("run: %+v after %v", r, errs)
	}
}

func oneLost(errs [2]error, as error) bool {
	return (errs[0] == nil) != (errs[1] == nil) && errors.Is(errors.Join(errs[0], errs[1]), as)
}

func raceDue(t *testing.T, two [2]*ledger.Ledger, d ledger.Due) {
	t.Helper()
	var got [2]runs.Occurrence
	for _, err := range atOnce(two, func(i int, l *ledger.Ledger) error {
		o, err := l.RecordDue(t.Context(), d.Nominal, []ledger.Due{d}, nil)
		if err == nil {
			got[i] = o[0]
		}
		return err
	}) {
		ok(t, err)
	}
	if got[0].Run == 0 || got[0].Run != got[1].Run {
		t.Errorf("an instant was not recorded once: %+v", got)
	}
}
