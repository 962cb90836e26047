package dispatch

import (
	"context"
	"path/filepath"
	"testing"

	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/pause"
)

// TestPauseSetDuringAPass sets a pause during a pass and queues a run after it. The run must not
// start in this pass.
func TestPauseSetDuringAPass(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	l, err := ledger.Open(ctx, ledger.Options{Path: filepath.Join(t.TempDir(), "ledger.db")})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()

	d, err := New(Options{Ledger: l, Executor: ExecutorFunc(succeed), Runs: 4, RunsPerAgent: 4})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.readPauses(ctx); err != nil { // as at the start of a pass
		t.Fatal(err)
	}

	if _, err := l.Pauses.Set(ctx, pause.Pause{Scope: pause.Job, Name: "held"}); err != nil {
		t.Fatal(err)
	}
	states := map[string]domain.State{}
	var queued []ledger.Accepted
	for _, job := range []string{"held", "free"} {
		accepted, err := l.Enqueue(ctx, ledger.Request{Job: job, Trigger: domain.TriggerSchedule, Key: job})
		if err != nil {
			t.Fatal(err)
		}
		queued = append(queued, accepted...)
	}
	if err := d.fillLanes(ctx, ctx, l.Now()); err != nil {
		t.Fatal(err)
	}
	d.here.group.Wait()

	for _, a := range queued {
		r, err := l.Runs.Get(ctx, a.Run)
		if err != nil {
			t.Fatal(err)
		}
		states[r.Job] = r.State
	}
	if states["held"] != domain.StateQueued || states["free"] != domain.StateFinished {
		t.Errorf("%v", states)
	}
}

func succeed(context.Context, ledger.Run, ledger.Attempt) (ledger.Result, error) {
	return ledger.Result{Outcome: domain.OutcomeSuccess}, nil
}
