package agent_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rouse/agent/loop"
	"rouse/agent/model/playbook"
	"rouse/agent/plan"
	"rouse/agent/tool/shell"
	"rouse/internal/domain"
	"rouse/internal/ledger"
)

// TestPlaybookSteps checks that each call of a playbook is a step. The bound on steps applies, and
// the run reports it. A repeated attempt does not count calls that the record answers. Without a
// bound there is no limit.
func TestPlaybookSteps(t *testing.T) {
	t.Parallel()
	note := func(what string) playbook.Call {
		return playbook.Call{Name: "db_insert", With: map[string]any{"table": "log", "row": map[string]any{"what": what}}}
	}
	for _, c := range []struct {
		steps, calls, made int
		outcome            domain.Outcome
	}{
		{2, 2, 2, domain.OutcomeSuccess},
		{2, 6, 2, domain.OutcomeBudget},
		{0, 31, 31, domain.OutcomeSuccess}, // more than the default for models
	} {
		t.Run(fmt.Sprintf("%d of %d", c.steps, c.calls), func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.table()
			job := plan.Job{Name: "j", Agent: "clerk", Bounds: loop.Bounds{Steps: c.steps}}
			for i := range c.calls {
				job.Playbook = append(job.Playbook, note(fmt.Sprint(i)))
			}

			b.plan.Jobs["j"] = job
			id := b.enqueue(ledger.Request{Job: "j", Agent: "clerk"})
			for try := range 2 {
				res := b.run(id)
				if res.Outcome != c.outcome || res.Steps != c.made || res.Calls != c.made || b.count() != c.made {
					t.Fatalf("%+v, %d rows", res, b.count())
				}
				if want := "the 2 steps of this run (bounds.steps) were used up: without a model each call is one, and db_insert (call 3) was not made any more"; res.Outcome == domain.OutcomeBudget &&
					(res.Error != want || res.Exit != domain.ExitIterationCap || res.Summary != "db_insert: 1; db_insert: 2") {
					t.Errorf("%+v", res)
				}

				if err := b.ledger.Finish(t.Context(), ledger.Attempt{Run: id, Number: try + 1}, ledger.Result{Outcome: domain.OutcomeError, Exit: domain.ExitEnded}); err != nil {
					t.Fatal(err)
				}
				if _, err := b.ledger.Retry(t.Context(), id); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// shellJob adds a job of one command, which its agent may run, and queues a run.
func (b *bench) shellJob(argv ...string) int64 {
	clerk := b.plan.Agents["clerk"]
	clerk.Commands = []shell.Grant{{Argv: argv}}
	b.plan.Agents["clerk"] = clerk
	quoted := make([]string, len(argv))
	for i, a := range argv {
		quoted[i] = "'" + a + "'"
	}

	b.plan.Jobs["j"] = plan.Job{
		Name: "j", Agent: "clerk", Notify: plan.Notify{On: []string{"error"}, Channels: []string{"desktop"}},
		Playbook: []playbook.Call{{Name: "shell_run", With: map[string]any{"command": strings.Join(quoted, " ")}}},
	}
	return b.enqueue(ledger.Request{Job: "j", Agent: "clerk"})
}

// TestFailingProgram checks that a failing program fails the run. The owner is notified of the exit
// code and the last lines.
func TestFailingProgram(t *testing.T) {
	t.Parallel()
	confined(t)
	b := setup(t)
	id := b.shellJob("sh", "-c", "echo begun; echo the disk is full >&2; exit 3")
	res := b.run(id)
	if want := "call 1 (shell_run) failed: sh: exit 3, 2 lines; the last of them:\nbegun\nthe disk is full"; res.Outcome != domain.OutcomeError || res.Error != want {
		t.Fatalf("%+v", res)
	}

	told := b.told(ledger.Run{ID: id, Job: "j", Attempt: 1}, res)
	if len(told) != 1 || told[0].Title != "j: error" || !strings.Contains(told[0].Body, "sh: exit 3, 2 lines; the last of them:\nbegun\nthe disk is full\n") {
		t.Errorf("%+v", told)
	}
}

// TestProgramEndedWithItsRun checks that a program that was ended with its run has not succeeded,
// and that the next attempt does not treat it as done.
func TestProgramEndedWithItsRun(t *testing.T) {
	t.Parallel()
	confined(t)
	b := setup(t)
	id := b.shellJob("sleep", "60")
	ctx, stop := context.WithTimeout(t.Context(), time.Second)
	defer stop()

	if res := b.attempt(ctx, id); res.Outcome != domain.OutcomeCancelled {
		t.Fatalf("%+v", res)
	}
	if calls, err := b.ledger.Steps.Calls(t.Context(), id); err != nil || len(calls) != 1 || calls[0].State != domain.CallUncertain {
		t.Fatalf("%+v %v", calls, err)
	}
}

// TestUnmetCallIsMadeAgain checks that a retry repeats a call with an unmet expectation. A call
// with a met expectation is not repeated if it changed something.
func TestUnmetCallIsMadeAgain(t *testing.T) {
	t.Parallel()
	confined(t)
	b := setup(t)
	id := b.shellJob("sh", "-c", "echo once >> made; ls later")
	job := b.plan.Jobs["j"]
	job.Playbook[0].Expect.Exit = []int{0}
	job.Playbook = append(job.Playbook, playbook.Call{Name: "file_read", With: map[string]any{"path": "last"}})
	job.Bounds.Steps = 2
	b.plan.Jobs["j"] = job

	made := filepath.Join(b.dir, "work", "made")
	for try, c := range []struct{ file, say, made string }{
		{"later", "call 1 (shell_run) failed: it expects exit code 0, and came to sh: exit", "once\n"},
		{"last", "call 2 (file_read) failed: not_found", "once\nonce\n"},
		{"", "", "once\nonce\n"},
	} {
		res := b.run(id)
		if !strings.HasPrefix(res.Error, c.say) || (res.Error == "") != (c.say == "") {
			t.Fatalf("try %d: %+v", try, res)
		}
		if got, err := os.ReadFile(made); err != nil || string(got) != c.made {
			t.Errorf("try %d: %q %v", try, got, err)
		}
		if c.file == "" {
			return
		}

		if err := b.ledger.Finish(t.Context(), ledger.Attempt{Run: id, Number: try + 1}, res); err != nil {
			t.Fatal(err)
		}
		if _, err := b.ledger.Retry(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		b.has(c.file, "x")
	}
}

// TestRetryThatWasCutOff checks that a failed call is retried even if the attempt for the retry was
// interrupted before it.
func TestRetryThatWasCutOff(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.table()
	b.plan.Jobs["j"] = plan.Job{Name: "j", Agent: "clerk", Playbook: []playbook.Call{
		{Name: "db_insert", With: map[string]any{"table": "log", "row": map[string]any{"what": "x"}}},
		{Name: "file_read", With: map[string]any{"path": "later"}},
	}}
	id := b.enqueue(ledger.Request{Job: "j", Agent: "clerk"})
	res := b.run(id)
	if res.Outcome != domain.OutcomeError {
		t.Fatalf("%+v", res)
	}
	if err := b.ledger.Finish(t.Context(), ledger.Attempt{Run: id, Number: 1}, res); err != nil {
		t.Fatal(err)
	}

	b.has("later", "x")
	if _, err := b.ledger.Retry(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	_, a, err := b.ledger.StartAttempt(t.Context(), id)
	if err == nil {
		err = b.ledger.Interrupt(t.Context(), a, "killed", nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	if res := b.run(id); res.Outcome != domain.OutcomeSuccess || b.count() != 1 {
		t.Errorf("%+v, %d rows", res, b.count())
	}
}
