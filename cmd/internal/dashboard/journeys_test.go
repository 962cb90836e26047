package dashboard_test

import (
	"fmt"
	"testing"
	"time"

	"rouse/cmd/internal/cmdtest"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/steps"
)

// seedFailure records a run of the job books with the given number of calls, of which the last
// failed.
func seedFailure(t *testing.T, l *ledger.Ledger, calls int) int64 {
	t.Helper()
	out, err := l.Enqueue(t.Context(), ledger.Request{Job: "books", Agent: "bookkeeper", Trigger: domain.TriggerManual})
	if err != nil {
		t.Fatal(err)
	}
	run, a, err := l.StartAttempt(t.Context(), out[0].Run)
	if err != nil {
		t.Fatal(err)
	}

	for n := 1; n <= calls; n++ {
		step := steps.Step{Run: run.ID, Attempt: a.Number, Number: n, Text: fmt.Sprintf("This is step %d.", n), Model: "m"}
		call := ledger.Call{Run: run.ID, Attempt: a.Number, Step: n, ID: "1", Key: fmt.Sprint(n), Tool: "file_read", Args: object(t, map[string]any{"path": fmt.Sprintf("statement-%d.csv", n)}), Effect: domain.EffectRead}
		done := call
		done.State, done.Envelope = domain.CallDone, object(t, map[string]any{"ok": true, "result": "read"})
		if n == calls {
			done.Envelope = object(t, map[string]any{"ok": false, "kind": "not_found", "message": "the last statement is not there"})
		}
		for _, err := range []error{l.Steps.StartStep(t.Context(), a, step), l.Steps.StartCall(t.Context(), a, call), l.Steps.FinishCall(t.Context(), a, done), l.Steps.FinishStep(t.Context(), a, step)} {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := l.Finish(t.Context(), a, ledger.Result{Outcome: domain.OutcomeError, Summary: "stopped", Error: "the last statement is not there"}); err != nil {
		t.Fatal(err)
	}
	return run.ID
}

// At most three clicks lead from the login link to the failing call of a run that failed yesterday,
// on a quiet home and on a busy one. The window then shows that call.
func TestInChromiumYesterdaysFailure(t *testing.T) {
	for _, since := range []int{0, 60} {
		for _, w := range windows {
			t.Run(fmt.Sprintf("%d runs since, %s", since, w.name), func(t *testing.T) {
				var failed int64
				dir := cmdtest.Write(t, map[string]string{"rouse.yaml": configuration})
				zone, err := time.LoadLocation("Europe/Berlin")
				if err != nil {
					t.Fatal(err)
				}
				y, m, d := time.Now().In(zone).Date()
				seedIn(t, dir, func() time.Time { return time.Date(y, m, d-1, 12, 0, 0, 0, zone) }, func(l *ledger.Ledger) { failed = seedFailure(t, l, 40) })
				seedIn(t, dir, time.Now, func(l *ledger.Ledger) {
					for range since {
						finished(t, l, "books", domain.OutcomeSuccess)
					}
				})

				b := browse(t, openIn(t, dir), w.name, w.width, w.height)
				b.shows("dt", "errors yesterday")
				b.click(`a[href*="outcome=error"]`, "1")
				b.holds("the list of what failed", "location.pathname === '/runs' && document.readyState === 'complete'")
				b.click("#found td a", fmt.Sprint(failed))
				b.holds("the failing call in the window", `(() => {
					const call = document.querySelector("#failing[open]");
					if (!call || document.readyState !== "complete") return false;
					const seen = (e) => { const r = e.getBoundingClientRect(); return e.checkVisibility() && r.top >= 0 && r.bottom <= innerHeight && r.height > 0; };
					return [call.querySelector("summary"), ...call.querySelectorAll("pre")].every(seen);
				})()`)
				b.shows("#failing", "statement-40.csv")
				b.shows("#failing", "the last statement is not there")
				if b.clicks > 3 {
					t.Errorf("%d clicks", b.clicks)
				}
			})
		}
	}
}

// If the job has not run since, one click on Today leads to a failure of yesterday.
func TestYesterdaysFailureIsALinkOnToday(t *testing.T) {
	var failed int64
	dir := cmdtest.Write(t, map[string]string{"rouse.yaml": configuration})
	seedIn(t, dir, func() time.Time { return time.Now().Add(-24 * time.Hour) }, func(l *ledger.Ledger) { failed = seedFailure(t, l, 1) })
	openIn(t, dir).expect("/", fmt.Sprintf("/runs/%d#failing", failed))
}
