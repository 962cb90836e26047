package agent_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rouse/agent"
	"rouse/agent/loop"
	"rouse/agent/model"
	"rouse/agent/model/modeltest"
	"rouse/agent/model/openai"
	"rouse/agent/model/playbook"
	"rouse/agent/model/replay"
	"rouse/agent/plan"
	"rouse/agent/record"
	"rouse/agentdb/pool"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/steps"
)

// recorded returns a bench whose job j is recorded.
func recorded(t *testing.T, job plan.Job, turns ...modeltest.Turn) *bench {
	t.Helper()
	b := setup(t, turns...)
	b.table()
	var err error
	if b.runner, err = agent.New(agent.Options{Ledger: b.ledger, Databases: b.pool, Manifests: filepath.Join(b.dir, "manifests"), Recordings: filepath.Join(b.dir, "recordings")}); err != nil {
		t.Fatal(err)
	}

	job.Name, job.Agent, job.Record = "j", "clerk", true
	b.plan.Jobs["j"] = job
	return b
}

// end records the end of the last attempt.
func (b *bench) end(id int64, res ledger.Result) {
	b.t.Helper()
	run, err := b.ledger.Runs.Get(b.t.Context(), id)
	if err == nil {
		err = b.ledger.Finish(b.t.Context(), ledger.Attempt{Run: id, Number: run.Attempt}, res)
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

// play replays a run from a file, in a home folder of its own.
func (b *bench) play(id int64) (replay.Recording, record.Result) {
	b.t.Helper()
	b.runner.Set(b.plan)
	rec, err := b.runner.ExportRecording(b.t.Context(), id)
	if err != nil {
		b.t.Fatal(err)
	}

	var file strings.Builder
	if err := replay.Write(&file, rec); err != nil {
		b.t.Fatal(err)
	}
	if rec, err = replay.Read(strings.NewReader(file.String())); err != nil {
		b.t.Fatal(err)
	}

	asked := len(b.server.Requests())
	dir := b.t.TempDir()
	l, err := ledger.Open(b.t.Context(), ledger.Options{Path: filepath.Join(dir, "ledger.db")})
	if err != nil {
		b.t.Fatal(err)
	}
	defer l.Close()

	pool, err := pool.New(pool.Options{Dir: filepath.Join(dir, "agents")})
	if err != nil {
		b.t.Fatal(err)
	}
	defer pool.Close()

	r, err := agent.New(agent.Options{Ledger: l, Databases: pool, Manifests: filepath.Join(dir, "manifests"), Tools: b.tools})
	if err != nil {
		b.t.Fatal(err)
	}

	r.Set(b.plan)
	p, err := r.Replay(b.t.Context(), rec)
	if err != nil {
		b.t.Fatal(err)
	}
	if n := len(b.server.Requests()); n != asked {
		b.t.Errorf("the replay asked its model %d times", n-asked)
	}
	if entries, err := os.ReadDir(filepath.Join(dir, "agents")); err == nil && len(entries) > 0 {
		b.t.Errorf("the replay opened a database")
	}

	return rec, p
}

// same fails the test if a replay differs from the run.
func (b *bench) same(id int64) {
	b.t.Helper()
	if _, p := b.play(id); !p.Same() || p.Now != p.Recorded {
		b.t.Errorf("unknown %q\nrecorded %+v\nnow      %+v", p.Unknown, p.Recorded, p.Now)
		for _, d := range p.Differences {
			b.t.Errorf("attempt %d, step %d: %s", d.Attempt, d.Step, d)
		}
	}
}

func complete(id string) modeltest.Turn {
	return modeltest.Turn{Calls: []model.Call{{ID: id, Name: "complete", Args: json.RawMessage(`{"summary":"All of it was done as it was asked for."}`)}}}
}

// TestReplayOfAttempts checks that a run that was interrupted, asked its owner, or failed and was
// retried, is replayed attempt by attempt.
func TestReplayOfAttempts(t *testing.T) {
	t.Parallel()
	t.Run("interrupted between steps", func(t *testing.T) {
		b := recorded(t, plan.Job{Prompt: "Write {{ .Job }}."}, modeltest.Turn{Text: "One.", Calls: []model.Call{insertCall("1", "one")}}, modeltest.Turn{Status: 401, Raw: "the power fails here"},
			modeltest.Turn{Calls: []model.Call{insertCall("2", "two")}}, complete("3"))
		id := b.enqueue(ledger.Request{Job: "j", Agent: "clerk"})
		b.run(id)
		if err := b.ledger.Interrupt(t.Context(), ledger.Attempt{Run: id, Number: 1}, "killed", nil); err != nil {
			t.Fatal(err)
		}

		b.end(id, b.run(id))
		b.same(id)
	})

	t.Run("interrupted before a call", func(t *testing.T) {
		b := recorded(t, plan.Job{Prompt: "Write."}, complete("3"))
		id := b.enqueue(ledger.Request{Job: "j", Agent: "clerk"})
		pendingWrite(t, b, id)
		b.end(id, b.run(id))
		b.same(id)
	})

	t.Run("asked", func(t *testing.T) {
		b := recorded(t, plan.Job{Prompt: "Write."}, modeltest.Turn{Calls: []model.Call{{ID: "1", Name: "clarify", Args: json.RawMessage(`{"question":"Which one?"}`)}}}, complete("2"))
		id := b.enqueue(ledger.Request{Job: "j", Agent: "clerk"})
		b.end(id, b.run(id))
		items, err := b.ledger.Inbox.List(t.Context())
		if err != nil || len(items) != 1 {
			t.Fatalf("%+v %v", items, err)
		}
		if _, err := b.ledger.Answer(t.Context(), items[0].ID, "The red one."); err != nil {
			t.Fatal(err)
		}

		b.end(id, b.run(id))
		b.same(id)
	})

	t.Run("failed and tried again", func(t *testing.T) {
		b := recorded(t, plan.Job{Prompt: "Attempt {{ .Attempt }}."}, modeltest.Turn{Calls: []model.Call{insertCall("1", "one")}}, modeltest.Turn{Fail: model.KindAuth}, complete("2"))
		id := b.enqueue(ledger.Request{Job: "j", Agent: "clerk"})
		res := b.run(id)
		res.RetryAt = time.Now().Add(-time.Second)
		b.end(id, res)
		b.end(id, b.run(id))
		b.same(id)
	})

	t.Run("interrupted for good", func(t *testing.T) {
		b := recorded(t, plan.Job{Prompt: "Write."}, modeltest.Turn{Calls: []model.Call{insertCall("1", "one")}}, complete("2"))
		id := b.enqueue(ledger.Request{Job: "j", Agent: "clerk"})
		b.run(id)
		if err := b.ledger.Interrupt(t.Context(), ledger.Attempt{Run: id, Number: 1}, "killed", &ledger.Result{Outcome: domain.OutcomeInterrupted, Error: "killed"}); err != nil {
			t.Fatal(err)
		}
		b.same(id)
	})
}

// pendingWrite leaves an attempt of a process that died between an answer and its calls.
func pendingWrite(t *testing.T, b *bench, id int64) {
	t.Helper()
	b.runner.Set(b.plan)
	_, a, err := b.ledger.StartAttempt(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}

	c := model.Call{ID: "1", Key: "m1.1.1", Name: "file_write", Args: json.RawMessage(`{"path":"a.txt","content":"a"}`)}
	message, err := json.Marshal(model.Message{Role: model.RoleAssistant, Calls: []model.Call{c}})
	if err != nil {
		t.Fatal(err)
	}

	now := time.Now()
	dir := filepath.Join(b.dir, "recordings")
	var e replay.Encoder
	line, err := e.Exchange(replay.Exchange{Attempt: 1, Step: 1, Answer: replay.Answer{Calls: []model.Call{{ID: c.ID, Name: c.Name, Args: c.Args}}, Usage: &model.Usage{Input: 10, Output: 1}}})
	if err != nil {
		t.Fatal(err)
	}

	for _, err := range []error{
		os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, "1.1."+b.ledger.EpochOf(1).ID+".jsonl"), append(line, `{"exchange":{"att`...), 0o600), // a cut-off line
		b.ledger.Steps.StartStep(t.Context(), a, steps.Step{Number: 1, StartedAt: now}),
		b.ledger.Steps.FinishStep(t.Context(), a, steps.Step{Number: 1, Message: message, Usage: ledger.Usage{TokensIn: 10, TokensOut: 1}, FinishedAt: now}),
		b.ledger.Interrupt(t.Context(), a, "killed", nil),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestReplayOfAPlaybook checks that a playbook is replayed from its calls, without a recording, and
// that a changed value is detected.
func TestReplayOfAPlaybook(t *testing.T) {
	t.Parallel()
	b := recorded(t, plan.Job{Playbook: []playbook.Call{
		{Name: "db_insert", With: map[string]any{"table": "log", "row": map[string]any{"what": "{{ .Input.what }} after {{ .LastSuccess }}"}}, Save: "row"},
		{Name: "file_write", With: map[string]any{"path": "a.txt", "content": "{{ .row }}"}},
	}})
	first := b.enqueue(ledger.Request{Job: "j", Agent: "clerk", Detail: ledger.TriggerDetail{Input: map[string]string{"what": "tea"}}})
	b.end(first, b.run(first))
	id := b.enqueue(ledger.Request{Job: "j", Agent: "clerk", Detail: ledger.TriggerDetail{Input: map[string]string{"what": "cake"}}})
	b.end(id, b.run(id))
	last := b.enqueue(ledger.Request{Job: "j", Agent: "clerk", Detail: ledger.TriggerDetail{Input: map[string]string{"what": "rest"}}})
	b.end(last, b.run(last))
	if n := b.count(); n != 3 {
		t.Fatalf("%d rows", n)
	}

	for _, run := range []int64{first, id, last} {
		b.same(run)
	}

	if b.count() != 3 {
		t.Error("the replay wrote rows")
	}

	job := b.plan.Jobs["j"]
	job.Playbook[1].With["path"] = "b.txt"
	_, p := b.play(id)
	if len(p.Differences) != 1 || p.Differences[0].Step != 2 || p.Differences[0].What != "call 1, file_write, its arguments" || !strings.Contains(p.Differences[0].Now, "b.txt") {
		t.Errorf("%+v", p)
	}

	job.Playbook = append(job.Playbook, playbook.Call{Name: "notify", With: map[string]any{"title": "done"}})
	b.plan.Jobs["j"] = job
	if _, p := b.play(id); p.Now.Outcome != "error" || !strings.Contains(p.Now.Error, "the recording has no result of this call") {
		t.Errorf("a call more: %+v", p)
	}
}

// TestReplayEndsWithTheRecording checks that a replay reports if the run would continue beyond its
// recording.
func TestReplayEndsWithTheRecording(t *testing.T) {
	t.Parallel()
	b := recorded(t, plan.Job{Prompt: "Write.", Bounds: loop.Bounds{Steps: 2}}, modeltest.Turn{Calls: []model.Call{insertCall("1", "one")}}, modeltest.Turn{Calls: []model.Call{insertCall("2", "two")}}, modeltest.Turn{Text: "I wrote two rows."})
	id := b.enqueue(ledger.Request{Job: "j", Agent: "clerk"})
	b.end(id, b.run(id))
	b.same(id)
	job := b.plan.Jobs["j"]
	job.Bounds.Steps = 10
	b.plan.Jobs["j"] = job
	if _, p := b.play(id); p.Same() || !strings.HasPrefix(p.Unknown, "attempt 1, step 3: the recorded run had used up its steps here") {
		t.Errorf("%+v", p)
	}
}

// TestReplayOfAFallback checks that the fallback of a failed model is in the recording, and its
// price in the replay.
func TestReplayOfAFallback(t *testing.T) {
	t.Parallel()
	b := recorded(t, plan.Job{Prompt: "Write."}, modeltest.Turn{Text: "Yes.", Usage: model.Usage{Input: 100, Output: 10}})
	first := modeltest.New(t, spent)
	p, err := openai.New(openai.Options{BaseURL: first.URL, Model: "scripted"})
	if err != nil {
		t.Fatal(err)
	}

	a := b.plan.Agents["clerk"]
	a.Model.Price = model.Price{Input: 2, Output: 20}
	a.Model = &plan.Model{Name: "big", Provider: p, Price: model.Price{Input: 100, Output: 1000}, Fallback: a.Model}
	b.plan.Agents["clerk"] = a
	id := b.enqueue(ledger.Request{Job: "j", Agent: "clerk"})
	b.end(id, b.run(id))
	b.same(id)
	rec, played := b.play(id)
	var who []string
	for _, x := range rec.Exchanges {
		who = append(who, x.Model)
	}
	if strings.Join(who, " ") != "big scripted" || played.Now.CostMicroUSD != 400 {
		t.Errorf("answered by %v, %+v", who, played.Now)
	}
}

// TestReplayOfAWake checks that a wake is recorded like the job that began its chain, and replayed
// with its original text.
func TestReplayOfAWake(t *testing.T) {
	t.Parallel()
	b := recorded(t, plan.Job{Prompt: "Write."}, complete("1"))
	before := b.enqueue(ledger.Request{Job: "j", Agent: "clerk"})
	b.end(before, b.run(before))
	id := b.enqueue(ledger.Request{Agent: "clerk", Detail: ledger.TriggerDetail{Wake: &ledger.WakeDetail{Job: "j", Instructions: "Look again.", ScheduledBy: ledger.ByAgent, Planned: time.Now(), Asked: time.Now()}}})
	b.end(id, b.run(id))
	after := b.enqueue(ledger.Request{Job: "j", Agent: "clerk"})
	b.end(after, b.run(after))
	rec, _ := b.play(id)
	if len(rec.Exchanges) != 1 || !strings.Contains(rec.Exchanges[0].Request.Messages[0].Text, "Look again.") {
		t.Errorf("recorded: %+v", rec.Exchanges)
	}

	b.same(id)
}

// TestReplayInPhases checks the replay of phased runs and their working memory.
func TestReplayInPhases(t *testing.T) {
	t.Parallel()
	step := func(id, args string) modeltest.Turn {
		return modeltest.Turn{Calls: []model.Call{{ID: id, Name: "agent_step", Args: json.RawMessage(args)}}}
	}
	b := recorded(t, plan.Job{Prompt: "Write a row."},
		step("1", `{"phase":"plan","thinking":"first","summary":"plan it","plan":{"goal":"a row","sub_tasks":[{"id":"a","title":"write it"}]}}`),
		step("2", `{"phase":"act","thinking":"now","summary":"write it","action":{"tool_name":"db_insert","tool_input":{"table":"log","row":{"what":"x"}}}}`),
		step("3", `{"phase":"verify","thinking":"look","summary":"it is there","key_facts":["one row"],"sub_task_outcome":"done"}`),
		step("4", `{"phase":"end","thinking":"done","summary":"end","end_status":"solved","end_message":"The row was written as it was asked for."}`))

	a := b.plan.Agents["clerk"]
	a.Phased = true
	b.plan.Agents["clerk"] = a
	id := b.enqueue(ledger.Request{Job: "j", Agent: "clerk"})
	b.end(id, b.run(id))
	if b.count() != 1 {
		t.Error("no row")
	}

	b.same(id)
}

// TestRecordingsAreKeptAsLongAsTheirRuns checks that only jobs with recording are recorded, and
// that a recording is deleted with its run.
func TestRecordingsAreKeptAsLongAsTheirRuns(t *testing.T) {
	t.Parallel()
	b := recorded(t, plan.Job{Prompt: "Write."}, complete("1"))
	b.plan.Jobs["quiet"] = plan.Job{Name: "quiet", Agent: "clerk", Prompt: "Write."}
	quiet, id := b.enqueue(ledger.Request{Job: "quiet", Agent: "clerk"}), b.enqueue(ledger.Request{Job: "j", Agent: "clerk"})
	if _, err := b.runner.ExportRecording(t.Context(), id); err == nil || !strings.Contains(err.Error(), "has not finished (queued)") {
		t.Errorf("an unfinished run: %v", err)
	}

	b.end(quiet, b.run(quiet))
	b.end(id, b.run(id))
	kept := func() int {
		entries, err := os.ReadDir(filepath.Join(b.dir, "recordings"))
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	if err := b.runner.Sweep(t.Context()); err != nil || kept() != 1 {
		t.Errorf("%d recordings (%v)", kept(), err)
	}
	if _, err := b.ledger.Maint.Prune(t.Context(), time.Now().Add(time.Hour), func(string) time.Duration { return time.Minute }); err != nil {
		t.Fatal(err)
	}
	if err := b.runner.Sweep(t.Context()); err != nil || kept() != 0 {
		t.Errorf("%d recordings of runs that are gone (%v)", kept(), err)
	}
}
