package agent_test

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"rouse/agent"
	"rouse/agent/loop"
	"rouse/agent/model"
	"rouse/agent/model/playbook"
	"rouse/agent/plan"
	"rouse/agent/tool"
	"rouse/agent/tool/executor"
	"rouse/agent/undo"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/fileop"
	"rouse/internal/ledger/inbox"
	"rouse/internal/ledger/steps"
)

// executing returns a bench with a job that this test binary executes as an agent program with the
// given behavior.
func executing(t *testing.T, does string, change func(*executor.Settings)) *bench {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("the confinement is tried out on Linux alone")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}

	b := setup(t)
	s := executor.Settings{Argv: []string{self}, JSON: true, Env: []string{fakeAgentKey + "=" + does}, Home: filepath.Join(b.dir, "home")}
	if change != nil {
		change(&s)
	}
	a := b.plan.Agents["clerk"]
	a.Executor, a.Instructions = &s, "Be brief."
	b.plan.Agents["clerk"] = a
	b.plan.Jobs["j"] = plan.Job{Name: "j", Agent: "clerk", Prompt: "Do the work of {{ .Job }}."}
	if err := os.MkdirAll(a.Workdir, 0o755); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *bench) work(name string) string {
	raw, err := os.ReadFile(filepath.Join(b.dir, "work", name))
	if err != nil {
		return ""
	}
	return string(raw)
}

// TestExecutor checks that an agent program gets its task, and that its run is counted, recorded,
// redacted and undone. Changes that cannot be undone are reported.
func TestExecutor(t *testing.T) {
	t.Parallel()
	b := executing(t, "works", func(s *executor.Settings) { s.Env = append(s.Env, "AGENT_API_KEY=sk-canary") })
	b.write("work/old.txt", "old")
	b.write("work/gone/file.txt", "bye")
	b.write("work/big.bin", strings.Repeat("x", 6<<20))
	b.write("work/binary.dat", "\x00\x01")
	id := b.enqueue(ledger.Request{Job: "j", Agent: "clerk"})
	res := b.run(id)
	if res.Outcome != domain.OutcomeSuccess || res.Verified || !strings.HasPrefix(res.Summary, "It is written; the key is ") || strings.Contains(res.Summary, "sk-canary") ||
		res.Steps != 1 || res.Calls != 2 || res.Usage.TokensIn != 100 || res.Usage.CostMicroUSD != 250_000 {
		t.Fatalf("%+v", res)
	}
	if err := b.ledger.Finish(t.Context(), ledger.Attempt{Run: id, Number: 1}, res); err != nil {
		t.Fatal(err)
	}

	task := b.work("task.txt")
	for _, part := range []string{"You are clerk", "Be brief.", "Do the work of j.", "rouse-question"} {
		if !strings.Contains(task, part) {
			t.Errorf("the task lacks %q: %s", part, task)
		}
	}
	steps, err := b.ledger.Steps.List(t.Context(), id)
	if err != nil || len(steps) != 2 || steps[1].ParentCall != "p1.1" || steps[1].Text != "I write." || !strings.Contains(steps[1].Model, "as it says: fake-1") || steps[0].Usage.CostMicroUSD != 250_000 {
		t.Errorf("%+v %v", steps, err)
	}
	calls, err := b.ledger.Steps.Calls(t.Context(), id)
	if err != nil || len(calls) != 2 || calls[0].Tool != executor.Name() || calls[0].State != domain.CallDone || calls[1].Tool != executor.SaidName() || !strings.Contains(string(calls[1].Args), "Write") {
		t.Errorf("%+v %v", calls, err)
	}
	for _, c := range calls {
		if strings.Contains(string(c.Envelope)+string(c.Args), "sk-canary") {
			t.Errorf("a secret is on record: %s", c.Envelope)
		}
	}
	if !strings.Contains(string(calls[0].Envelope), "cannot be undone: ") {
		t.Errorf("what cannot be undone is not said: %s", calls[0].Envelope)
	}

	run, err := b.ledger.Runs.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	u, err := b.runner.Undoing.Undo(t.Context(), run, undo.Options{DryRun: true})
	if err != nil || u.CanUndo {
		t.Fatalf("%+v %v", u, err) // a large file and a link
	}
	if u, err = b.runner.Undoing.Undo(t.Context(), run, undo.Options{Force: true}); err != nil {
		t.Fatal(err)
	}
	if b.work("old.txt") != "old" || b.work("gone/file.txt") != "bye" || b.work("binary.dat") != "\x00\x01" || b.work("new/deep.txt") != "" || b.work("task.txt") != "" {
		t.Errorf("the files are not as they were: %+v", u)
	}
	if _, err := os.Stat(filepath.Join(b.dir, "work", "new")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder is still there: %v", err)
	}
	left := strings.Join(u.Left, "\n")
	for _, part := range []string{"big.bin stays", "link stays", "what executor did stays, but for the files named above"} {
		if !strings.Contains(left, part) {
			t.Errorf("the undo does not say %q: %s", part, left)
		}
	}
}

// TestExecutorEndings checks the outcome of a run for different behaviors of a program and bounds
// of the run.
func TestExecutorEndings(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		does   string
		bounds loop.Bounds
		want   domain.Outcome
		says   string
	}{
		"cost":    {"tokens without end", loop.Bounds{CostMicroUSD: 5000, Steps: -1}, domain.OutcomeBudget, "bounds.cost_usd"},
		"steps":   {"turns without end", loop.Bounds{Steps: 5}, domain.OutcomeBudget, "bounds.steps"},
		"tokens":  {"tokens without end", loop.Bounds{Tokens: 5000, Steps: -1}, domain.OutcomeBudget, "bounds.tokens"},
		"output":  {"writes without end", loop.Bounds{Output: 100_000, Steps: -1}, domain.OutcomeBudget, "bounds.output"},
		"idle":    {"silent", loop.Bounds{Idle: 300 * time.Millisecond}, domain.OutcomeTimeout, "wrote nothing for 300ms"},
		"wall":    {"silent", loop.Bounds{Wall: 500 * time.Millisecond}, domain.OutcomeTimeout, "wall time"},
		"crashes": {"crashes", loop.Bounds{}, domain.OutcomeError, "out of ideas"},

		"hangs after its result":              {"reports and hangs", loop.Bounds{}, domain.OutcomeSuccess, ""},
		"is idle after its result":            {"reports and hangs", loop.Bounds{Idle: 8 * time.Second}, domain.OutcomeSuccess, ""},
		"takes all its time after its result": {"reports and hangs", loop.Bounds{Wall: 9 * time.Second}, domain.OutcomeSuccess, ""},
		"hangs after its failure":             {"reports a failure and hangs", loop.Bounds{Idle: 8 * time.Second}, domain.OutcomeError, "no luck"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := executing(t, c.does, func(s *executor.Settings) {
				if c.bounds.CostMicroUSD > 0 {
					s.Price = model.Price{Input: 1, Output: 1}
				}
			})
			job := b.plan.Jobs["j"]
			job.Bounds = c.bounds
			b.plan.Jobs["j"] = job
			id := b.enqueue(ledger.Request{Job: "j", Agent: "clerk"})
			if res := b.run(id); res.Outcome != c.want || !strings.Contains(res.Error, c.says) || c.want == domain.OutcomeSuccess && res.Summary != "The work is done." {
				t.Errorf("%+v", res)
			}
			b.noChild()
			if c.does == "crashes" { // its changes and its usage are recorded
				ops, err := b.ledger.FileOps.List(t.Context(), fileop.Filter{Run: id})
				if err != nil || len(ops) != 1 || filepath.Base(ops[0].Path) != "half.txt" {
					t.Errorf("%+v %v", ops, err)
				}
			}
		})
	}
}

// noChild fails the test if a child of the program is still running.
func (b *bench) noChild() {
	b.t.Helper()
	pid, err := strconv.Atoi(b.work("child.txt"))
	if err != nil {
		return
	}
	// On tier A the PID belongs to another namespace, in which all processes have ended with the
	// first.
	if cmd, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline"); err == nil && strings.Contains(string(cmd), "600") {
		b.t.Errorf("process %d goes on", pid)
	}
}

// TestExecutorIsCancelled checks that a user can cancel a program with all its children.
func TestExecutorIsCancelled(t *testing.T) {
	t.Parallel()
	b := executing(t, "silent", nil)
	id := b.enqueue(ledger.Request{Job: "j", Agent: "clerk"})
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	go func() {
		for b.work("child.txt") == "" && t.Context().Err() == nil {
			time.Sleep(5 * time.Millisecond)
		}
		cancel(errors.New("stopped by its owner"))
	}()
	if res := b.attempt(ctx, id); res.Outcome != domain.OutcomeCancelled {
		t.Errorf("%+v", res)
	}
	b.noChild()
}

// TestExecutorAsks checks that a program that asks a question is started again with the answer.
func TestExecutorAsks(t *testing.T) {
	t.Parallel()
	b := executing(t, "asks", nil)
	id := b.enqueue(ledger.Request{Job: "j", Agent: "clerk"})
	res := b.run(id)
	if res.Wait == nil || res.Wait.Message != "Which one, left or right?" {
		t.Fatalf("%+v", res)
	}
	b.answer(id, res, "the left one")
	if res := b.run(id); res.Outcome != domain.OutcomeSuccess || res.Summary != "I took the left one." {
		t.Errorf("%+v", res)
	}
}

// TestExecutorIsApproved checks that a run with untrusted content, private data and external
// effects waits for an approval before the program starts, and then continues. A standing approval
// covers later runs.
func TestExecutorIsApproved(t *testing.T) {
	t.Parallel()
	b := executing(t, "works", func(s *executor.Settings) { s.Network, s.Secret = true, true })
	a := b.plan.Agents["clerk"]
	a.MinTier = "B"
	b.plan.Agents["clerk"] = a
	id := b.enqueue(ledger.Request{Job: "j", Agent: "clerk"})
	res := b.run(id)
	if res.Wait == nil || res.Wait.Kind != inbox.KindApproval || !strings.Contains(res.Wait.Action.Description, "network: host") || b.work("task.txt") != "" {
		t.Fatalf("%+v", res)
	}
	b.answer(id, res, inbox.ApprovalAlways)
	if res := b.run(id); res.Outcome != domain.OutcomeSuccess {
		t.Fatalf("%+v", res)
	}

	job := b.plan.Jobs["j"]
	job.Prompt = "Something else." // the owner changed the prompt, which is not part of the action
	b.plan.Jobs["j"] = job
	if res := b.run(b.enqueue(ledger.Request{Job: "j", Agent: "clerk"})); res.Outcome != domain.OutcomeSuccess {
		t.Errorf("%+v", res)
	}
}

// TestExecutorBudget checks that no program starts if the daily budget is exhausted, and that a
// notice names the run with the estimate that filled it. A program without network access cannot
// reach a model and costs nothing.
func TestExecutorBudget(t *testing.T) {
	t.Parallel()
	b := executing(t, "crashes", func(s *executor.Settings) { s.Network = true })
	a := b.plan.Agents["clerk"]
	a.MinTier = "B"
	b.plan.Agents["clerk"] = a
	job := b.plan.Jobs["j"]
	job.Budget, job.Bounds = plan.Budget{CostMicroUSD: 1_000_000}, loop.Bounds{CostMicroUSD: 600_000}
	b.plan.Jobs["j"] = job
	if res := b.run(b.enqueue(ledger.Request{Job: "j", Agent: "clerk"})); res.Usage.CostMicroUSD != 600_000 || res.Usage.EstimatedMicroUSD != 600_000 {
		t.Errorf("%+v", res)
	}
	if err := os.Remove(filepath.Join(b.dir, "work", "half.txt")); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the owner gets one notice
		if res := b.run(b.enqueue(ledger.Request{Job: "j", Agent: "clerk"})); res.Outcome != domain.OutcomeBudget || !strings.HasPrefix(res.Error, "run 1 of j: the program did not report its cost") ||
			!strings.Contains(res.Error, "no room") || b.work("half.txt") != "" {
			t.Errorf("%+v", res)
		}
	}
	if told := b.notices(); len(told) != 1 || told[0].Title != "job j: the day's budget is used up" || !strings.Contains(told[0].Body, "run 1 of j") || !strings.Contains(told[0].Body, "executor: {price:") {
		t.Errorf("%+v", told)
	}
	b.plan.Jobs["free"] = plan.Job{Name: "free", Agent: "clerk", Budget: job.Budget,
		Playbook: []playbook.Call{{Name: "complete", With: map[string]any{"summary": "This job asks no model and costs nothing."}}}}
	if res := b.run(b.enqueue(ledger.Request{Job: "free", Agent: "clerk"})); res.Outcome != domain.OutcomeSuccess {
		t.Errorf("a job that costs nothing does not go on: %+v", res)
	}

	alone := executing(t, "crashes", nil)
	alone.plan.Jobs["j"] = job
	if res := alone.run(alone.enqueue(ledger.Request{Job: "j", Agent: "clerk"})); res.Outcome != domain.OutcomeError || res.Usage.CostMicroUSD != 0 || res.Usage.EstimatedMicroUSD != 0 {
		t.Errorf("without a network: %+v", res)
	}
}

// TestExecutorIsTriedAgain checks that a failed run is retried, and that the program is told how
// the last attempt failed. An undo also covers the changes of the failed attempt.
func TestExecutorIsTriedAgain(t *testing.T) {
	t.Parallel()
	b := executing(t, "fails once", nil)
	id := b.enqueue(ledger.Request{Job: "j", Agent: "clerk"})
	res := b.run(id)
	if res.Outcome != domain.OutcomeError || b.work("half.txt") != "half" {
		t.Fatalf("%+v", res)
	}
	res.RetryAt = time.Now() // set by the retry of the job
	b.finish(id, 1, res)

	res = b.run(id)
	if res.Outcome != domain.OutcomeSuccess || res.Summary != "It is done at last." {
		t.Fatalf("%+v", res)
	}
	b.finish(id, 2, res)
	if task := b.work("second.txt"); !strings.Contains(task, "the first try was no good") || !strings.Contains(task, "Do the work of j.") {
		t.Errorf("the second attempt was told: %s", task)
	}
	calls, err := b.ledger.Steps.Calls(t.Context(), id)
	if err != nil || len(calls) != 2 || calls[0].Key != "p1.1" || calls[1].Key != "p2.1" {
		t.Errorf("%+v %v", calls, err)
	}

	run, err := b.ledger.Runs.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.runner.Undoing.Undo(t.Context(), run, undo.Options{Force: true}); err != nil || b.work("half.txt") != "" || b.work("second.txt") != "" {
		t.Errorf("%v, %q, %q", err, b.work("half.txt"), b.work("second.txt"))
	}
}

// TestExecutorIsSignedIn checks that a login has the same name in the program's HOME as in the
// owner's HOME, and can be changed only if this is granted.
func TestExecutorIsSignedIn(t *testing.T) {
	owner := t.TempDir()
	t.Setenv("HOME", owner)
	read, renewed := filepath.Join(owner, ".agent"), filepath.Join(owner, ".config", "renewed")
	for _, dir := range []string{read, renewed} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "token"), []byte("token of "+filepath.Base(dir)), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	b := executing(t, "signed in", func(s *executor.Settings) {
		s.Login = []executor.Login{{Path: read}, {Path: renewed, Write: true}}
	})
	if res := b.run(b.enqueue(ledger.Request{Job: "j", Agent: "clerk"})); res.Outcome != domain.OutcomeSuccess || res.Summary != "token of .agent, written: false; token of renewed, written: true" {
		t.Fatalf("%+v", res)
	}
	for path, want := range map[string]string{filepath.Join(read, "token"): "token of .agent", filepath.Join(renewed, "token"): "renewed"} {
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("%s holds %q (%v)", path, got, err)
		}
	}
}

// TestExecutorHasAPrice checks that the price is used for a program that reports tokens but no
// cost.
func TestExecutorHasAPrice(t *testing.T) {
	t.Parallel()
	b := executing(t, "tells tokens", func(s *executor.Settings) { s.Price = model.Price{Input: 1.25, Output: 10, Cached: 0.125} })
	job := b.plan.Jobs["j"]
	job.Budget, job.Bounds = plan.Budget{CostMicroUSD: 2000}, loop.Bounds{CostMicroUSD: 2000}
	b.plan.Jobs["j"] = job
	id := b.enqueue(ledger.Request{Job: "j", Agent: "clerk"})
	res := b.run(id)
	const cost = 750 + 50 + 1000 // 600 uncached tokens, 400 cached tokens, and 100 tokens of the answer
	if res.Outcome != domain.OutcomeSuccess || res.Usage.CostMicroUSD != cost || res.Usage.EstimatedMicroUSD != 0 || res.Usage.TokensIn != 1000 || res.Usage.TokensCached != 400 {
		t.Fatalf("%+v", res)
	}
	b.finish(id, 1, res)

	// The rest of the daily budget is less than the next run might cost.
	if res := b.run(b.enqueue(ledger.Request{Job: "j", Agent: "clerk"})); res.Outcome != domain.OutcomeBudget {
		t.Errorf("%+v", res)
	}
}

// TestExecutorIsPostponed checks that a run costs nothing and waits until the stated time if the
// program's model is unavailable. If the program has changed something, the run does not wait.
func TestExecutorIsPostponed(t *testing.T) {
	t.Parallel()
	for does, want := range map[string]time.Duration{"limited": 2 * time.Hour, "limited in words": 2 * time.Hour, "limited in text": 90 * time.Minute, "limited after its work": 0} {
		t.Run(does, func(t *testing.T) {
			t.Parallel()
			b := executing(t, does, func(s *executor.Settings) {
				s.JSON, s.Network = does != "limited in text", true
				s.Limits = []executor.Limit{{Match: regexp.MustCompile("quota of the team"), Wait: 90 * time.Minute}}
			})
			a := b.plan.Agents["clerk"]
			a.MinTier = "B"
			b.plan.Agents["clerk"] = a
			began := time.Now()
			accepted, err := b.ledger.Enqueue(t.Context(), ledger.Request{Job: "j", Agent: "clerk", Trigger: domain.TriggerSchedule, ScheduledAt: began})
			if err != nil {
				t.Fatal(err)
			}

			res := b.run(accepted[0].Run)
			if res.Outcome != domain.OutcomeError || (res.Postpone != nil) != (want > 0) {
				t.Fatalf("%+v", res)
			}
			if want == 0 {
				return
			}
			if until := res.Postpone.Until; until.Before(began.Add(want-time.Second)) || until.After(time.Now().Add(want)) {
				t.Errorf("it waits until %s", until)
			}
			if res.Usage.CostMicroUSD != 0 || res.Usage.TokensIn != 0 {
				t.Errorf("it costs %+v", res.Usage)
			}
			if n := res.Postpone.Notices; len(n) != 1 || !strings.Contains(n[0].Body, "It is asked again at "+res.Postpone.Until.UTC().Format("2006-01-02 15:04 UTC")) {
				t.Errorf("%+v", n)
			}
		})
	}
}

// TestExecutorIsConfined checks that a program can access only granted places, and that its HOME is
// kept.
func TestExecutorIsConfined(t *testing.T) {
	t.Setenv("ROUSE_TEST_DAEMON_SECRET", "x")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()

	outside := filepath.Join(t.TempDir(), "outside")
	canary := filepath.Join(t.TempDir(), "canary")
	if err := os.WriteFile(canary, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	b := executing(t, "attacks", nil)
	a := b.plan.Agents["clerk"]
	a.Executor.Env = append(a.Executor.Env, "CANARY="+canary, "OUTSIDE="+outside, "LEDGER="+filepath.Join(b.dir, "ledger.db"), "SERVER="+l.Addr().String())
	if res := b.run(b.enqueue(ledger.Request{Job: "j", Agent: "clerk"})); res.Outcome != domain.OutcomeSuccess || res.Summary != "I tried: nothing worked" {
		t.Errorf("%+v", res)
	}
	if _, err := os.Stat(outside); err == nil {
		t.Error("it wrote outside")
	}
	if info, err := os.Stat(a.Executor.Home); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v %v", info, err)
	}
}

// TestExecutorDoesNotStart checks that a program that cannot start ends the run with the remedy. A
// program that an agent could replace is not started.
func TestExecutorDoesNotStart(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*bench, *executor.Settings)
		says   string
	}{
		"not installed":   {func(_ *bench, s *executor.Settings) { s.Argv = []string{"no-such-agent"} }, `there is no program "no-such-agent" on the daemon's PATH`},
		"no such login":   {func(b *bench, s *executor.Settings) { s.Login = []executor.Login{{Path: filepath.Join(b.dir, "none")}} }, "sign in with the program first"},
		"a long argument": {func(_ *bench, s *executor.Settings) { s.Argv = append(s.Argv, strings.Repeat("x", 200<<10)) }, "leave {{ .Prompt }} out of executor.argv"},
		"no bound":        {func(_ *bench, s *executor.Settings) { s.Argv = append(s.Argv, "{{ .MaxCostUSD }}") }, "MaxCostUSD"},
		"the agent's own": {func(b *bench, s *executor.Settings) {
			path := filepath.Join(b.dir, "work", "agent")
			if err := os.WriteFile(path, []byte("#!/bin/sh\n"), 0o755); err != nil {
				t.Fatal(err)
			}
			s.Argv = []string{path}
		}, "where the agent clerk can write, and so could lead the program"},
	} {
		b := executing(t, "works", nil)
		c.change(b, b.plan.Agents["clerk"].Executor)
		res := b.run(b.enqueue(ledger.Request{Job: "j", Agent: "clerk"}))
		if res.Outcome != domain.OutcomeError || !strings.Contains(res.Error, c.says) || b.work("task.txt") != "" {
			t.Errorf("%s: %+v", name, res)
		}
	}
}

// TestExecutorAfterACrash checks that an interrupted run is not repeated without the owner's
// decision, and that its changes can be undone. A failed run is retried, and its program is told of
// the failure.
func TestExecutorAfterACrash(t *testing.T) {
	t.Parallel()
	b := executing(t, "works", nil)
	b.write("work/old.txt", "old")
	id := b.enqueue(ledger.Request{Job: "j", Agent: "clerk"})
	run, a, err := b.ledger.StartAttempt(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	args := []byte(`{"program":"[]","prompt":"x"}`)
	call := ledger.Call{Run: run.ID, Attempt: a.Number, Step: 1, ID: "p1.1", Key: "p1.1", Tool: executor.Name(), Args: args, Effect: domain.EffectExternal, StartedAt: time.Now()}
	if err := b.ledger.Steps.Record(t.Context(), a, steps.StepStarted(steps.Step{Run: run.ID, Attempt: a.Number, Number: 1, StartedAt: time.Now()}), steps.CallStarted(call)); err != nil {
		t.Fatal(err)
	}
	if err := b.ledger.Interrupt(t.Context(), a, "its process ended", nil); err != nil {
		t.Fatal(err)
	}

	res := b.run(id)
	if res.Wait == nil || res.Wait.Kind != inbox.KindRecovery || b.work("task.txt") != "" || strings.Contains(strings.Join(res.Wait.Options, " "), inbox.RecoverySkip) {
		t.Fatalf("%+v", res)
	}
	b.finish(id, 2, res)
	items, err := b.ledger.Inbox.List(t.Context())
	if err != nil || len(items) != 1 {
		t.Fatalf("%+v %v", items, err)
	}
	if _, err := b.ledger.Answer(t.Context(), items[0].ID, inbox.RecoveryAgain); err != nil {
		t.Fatal(err)
	}
	if res := b.run(id); res.Outcome != domain.OutcomeSuccess || b.work("task.txt") == "" {
		t.Errorf("%+v", res)
	}
}

// TestExecutorToolsAreNotListed checks that only runs of agent programs can use the executor tools.
func TestExecutorToolsAreNotListed(t *testing.T) {
	t.Parallel()
	for _, name := range agent.Specs().Callable() {
		if name == executor.Name() || name == executor.SaidName() {
			t.Errorf("%s can be called", name)
		}
	}
	if s := agent.Specs().Find(executor.Name()); s.Requires != tool.RequiresExecutor || s.Effect != domain.EffectExternal {
		t.Errorf("%+v", s)
	}
}
