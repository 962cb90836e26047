package agent_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rouse/agent"
	"rouse/agent/model/playbook"
	"rouse/agent/plan"
	"rouse/agentdb/changelog"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/event"
	"rouse/scheduler/dispatch"
)

// TestUndoOnFailure checks OSA-61: with undo_on_failure all writes of a failed run are undone. The
// next attempt repeats them instead of treating them as done.
func TestUndoOnFailure(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.table()
	job := plan.Job{Name: "j", Agent: "clerk", UndoOnFailure: true, Playbook: []playbook.Call{
		{Name: "db_insert", With: map[string]any{"table": "log", "row": map[string]any{"what": "{{ .Job }}"}}},
		{Name: "file_read", With: map[string]any{"path": "later.txt"}},
	}}
	b.plan.Jobs["j"] = job
	id := b.enqueue(ledger.Request{Job: "j", Agent: "clerk"})
	res := b.run(id)
	if res.Outcome != domain.OutcomeError || !strings.Contains(res.Error, "what it wrote into the database was undone") || b.count() != 0 {
		t.Fatalf("%+v, %d rows", res, b.count())
	}

	events, err := b.ledger.Events.List(t.Context(), event.Filter{Run: id})
	if err != nil || events[len(events)-1].Kind != "run.undone" {
		t.Errorf("%+v %v", events, err)
	}
	if err := b.ledger.Finish(t.Context(), ledger.Attempt{Run: id, Number: 1}, res); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(b.dir, "work", "later.txt"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}

	if _, err := b.ledger.Retry(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if res := b.run(id); res.Outcome != domain.OutcomeSuccess || b.count() != 1 {
		t.Errorf("%+v, %d rows", res, b.count())
	}
}

// TestUndoOfAnInterruptedRun checks OSA-61: this also applies to an interrupted run without another
// attempt.
func TestUndoOfAnInterruptedRun(t *testing.T) {
	t.Parallel()
	for name, undo := range map[string]bool{"asked for": true, "not": false} {
		t.Run(name, func(t *testing.T) {
			b := setup(t)
			b.table()
			b.plan.Jobs["j"] = plan.Job{Name: "j", Agent: "clerk", UndoOnFailure: undo}
			b.runner.Set(b.plan)
			id := b.enqueue(ledger.Request{Job: "j", Agent: "clerk"})
			run, _, err := b.ledger.StartAttempt(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}

			db, release, err := b.pool.Get(t.Context(), "clerk")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := db.Insert(t.Context(), changelog.By{Run: id}, "log", []map[string]any{{"what": "half"}}); err != nil {
				t.Fatal(err)
			}

			release()
			d, err := dispatch.New(dispatch.Options{Ledger: b.ledger, Executor: neverResumed{b.runner.Executor()}, Only: id})
			if err != nil {
				t.Fatal(err)
			}
			if err := d.Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			if run, err = b.ledger.Runs.Get(t.Context(), id); err != nil || run.Outcome != domain.OutcomeInterrupted {
				t.Fatalf("%+v %v", run, err)
			}

			if told := strings.Contains(run.Error, "what it wrote into the database was undone"); told != undo || (b.count() == 0) != undo {
				t.Errorf("%d rows: %s", b.count(), run.Error)
			}
		})
	}
}

// neverResumed is a runner in a daemon that does not resume interrupted runs.
type neverResumed struct{ agent.Executor }

func (neverResumed) Policy(string) dispatch.Policy { return dispatch.Policy{Resume: false} }
