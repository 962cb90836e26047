package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"rouse/agent"
	"rouse/agent/loop"
	"rouse/agent/model"
	"rouse/agent/model/modeltest"
	"rouse/agent/model/openai"
	"rouse/agent/model/playbook"
	"rouse/agent/plan"
	"rouse/agent/servers"
	"rouse/agent/tool"
	"rouse/agentdb"
	"rouse/agentdb/changelog"
	"rouse/agentdb/pool"
	"rouse/agentdb/schema"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/incident"
	"rouse/internal/ledger/ledgertest"
	"rouse/internal/ledger/record"
	"rouse/internal/ledger/steps"
)

// bench is a runner with a ledger, a database and a scripted server.
type bench struct {
	t      *testing.T
	dir    string
	ledger *ledger.Ledger
	pool   *pool.Pool
	runner *agent.Runner
	server *modeltest.Server
	plan   plan.Plan
	quota  int64       // bytes of each database; 0 means no limit
	tools  []tool.Tool // in addition to the built-in tools
	// desktop reports whether there is a desktop session. If nil, there is none.
	desktop func() bool
	// signIns configures the sign-ins of modules. If nil, sign-ins are not stored.
	signIns *servers.SignInOptions
	// stopAfter is the time after which a user stops the run. Zero means never.
	stopAfter time.Duration
}

func setup(t *testing.T, turns ...modeltest.Turn) *bench {
	t.Helper()
	s := modeltest.New(t, turns...)
	p, err := openai.New(openai.Options{BaseURL: s.URL, Model: "scripted"})
	if err != nil {
		t.Fatal(err)
	}
	return furnish(t, s, p)
}

func furnish(t *testing.T, s *modeltest.Server, p model.Provider) *bench {
	t.Helper()
	b := &bench{t: t, dir: t.TempDir(), server: s}
	err := ledgertest.Blank(filepath.Join(b.dir, "ledger.db"))
	if err != nil {
		t.Fatal(err)
	}
	if b.ledger, err = ledger.Open(t.Context(), ledger.Options{Path: filepath.Join(b.dir, "ledger.db")}); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { b.ledger.Close() })
	b.newPool()
	b.plan = plan.Plan{
		Agents: map[string]plan.Agent{
			"clerk": {Name: "clerk", Workdir: filepath.Join(b.dir, "work"), Database: true, Model: &plan.Model{Name: "scripted", Provider: p}},
			"plain": {Name: "plain", Workdir: filepath.Join(b.dir, "plain")},
		},
		Jobs:     map[string]plan.Job{},
		Channels: []string{"desktop"}, DefaultChannels: []string{"desktop"}, Secrets: []string{"sk-canary", "sk-canary-and-more"},
	}

	return b
}

// newPool opens the databases and the runner again, as after a restart.
func (b *bench) newPool() {
	b.t.Helper()
	var err error
	if b.pool, err = pool.New(pool.Options{Dir: filepath.Join(b.dir, "agents"), Quota: func(string) int64 { return b.quota }}); err != nil {
		b.t.Fatal(err)
	}

	pool := b.pool
	b.t.Cleanup(func() { pool.Close() })
	if b.runner, err = agent.New(agent.Options{Desktop: b.desktop, Ledger: b.ledger, Databases: b.pool, Manifests: filepath.Join(b.dir, "manifests"), Storage: filepath.Join(b.dir, "storage"), Servers: filepath.Join(b.dir, "mcp"), SignIns: b.signIns}); err != nil {
		b.t.Fatal(err)
	}

	b.runner.Set(b.plan)
}

// told returns the notices of the end of a run that does not belong to an incident.
func (b *bench) told(run ledger.Run, res ledger.Result) []ledger.Notice {
	b.t.Helper()
	tell := b.runner.Notices.EndNotices(run, res)
	if tell == nil {
		return nil
	}
	return tell.For(incident.Change{})
}

// run executes the next attempt of a run like the dispatcher. It writes the last entries of the
// record, which the dispatcher would commit with the result.
func (b *bench) run(id int64) ledger.Result { return b.attempt(b.t.Context(), id) }

func (b *bench) attempt(ctx context.Context, id int64) ledger.Result {
	b.t.Helper()
	b.runner.Set(b.plan)
	run, a, err := b.ledger.StartAttempt(b.t.Context(), id)
	if err != nil {
		b.t.Fatal(err)
	}

	res, err := b.runner.Execute(ctx, run, a)
	if err == nil {
		err = b.ledger.Steps.Record(b.t.Context(), a, res.Record...)
	}
	if err != nil {
		b.t.Fatal(err)
	}
	res.Record = nil
	return res
}

func (b *bench) enqueue(r ledger.Request) int64 {
	b.t.Helper()
	r.Trigger = domain.TriggerManual
	out, err := b.ledger.Enqueue(b.t.Context(), r)
	if err != nil {
		b.t.Fatal(err)
	}
	return out[0].Run
}

func insertCall(id, what string) model.Call {
	return model.Call{ID: id, Name: "db_insert", Args: json.RawMessage(`{"table":"log","row":{"what":"` + what + `"}}`)}
}

func (b *bench) count() int {
	b.t.Helper()
	db, release, err := b.pool.Get(b.t.Context(), "clerk")
	if err != nil {
		b.t.Fatal(err)
	}
	defer release()

	rows, err := db.Query(b.t.Context(), agentdb.QuerySpec{SQL: "select count(*) n from log"})
	if err != nil {
		b.t.Fatal(err)
	}

	n, ok := rows.Rows[0]["n"].(int64)
	if !ok {
		b.t.Fatalf("%v", rows.Rows)
	}

	return int(n)
}

// table gives the clerk a database with the table log.
func (b *bench) table() {
	b.t.Helper()
	agents := filepath.Join(b.dir, "agents")
	if b.pool.Has("clerk") {
		if err := createLog(b.t.Context(), b.pool); err != nil {
			b.t.Fatal(err)
		}
		return
	}

	made, err := logDatabase()
	for path, content := range made {
		if err == nil {
			err = os.MkdirAll(filepath.Join(agents, filepath.Dir(path)), 0o700)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(agents, path), content, 0o600)
		}
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

// logDatabase returns the files of a pool in which the clerk has the table log, by path. They are
// created once, because a new database takes longer than most tests.
var logDatabase = sync.OnceValues(func() (map[string][]byte, error) {
	dir, err := os.MkdirTemp("", "rouse-log-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)

	pool, err := pool.New(pool.Options{Dir: dir})
	if err != nil {
		return nil, err
	}
	if err := errors.Join(createLog(context.Background(), pool), pool.Close()); err != nil {
		return nil, err
	}

	made := map[string][]byte{}
	err = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}

		rel, err := filepath.Rel(dir, path)
		if err == nil {
			made[rel], err = os.ReadFile(path)
		}
		return err
	})
	return made, err
})

func createLog(ctx context.Context, pool *pool.Pool) error {
	db, release, err := pool.Get(ctx, "clerk")
	if err != nil {
		return err
	}
	defer release()

	_, err = db.CreateTable(ctx, changelog.By{}, schema.TableSpec{Name: "log", Purpose: "What was done", Columns: []schema.Column{{Name: "what", Type: "TEXT"}}})
	return err
}

// TestModelGoesOnAfterAnInterruption checks that an interrupted run of a model continues its
// transcript. Calls with a result are not repeated, and the model is asked only for the next step.
func TestModelGoesOnAfterAnInterruption(t *testing.T) {
	t.Parallel()
	b := setup(t, modeltest.Turn{Calls: []model.Call{insertCall("1", "one")}}, modeltest.Turn{Status: 401, Raw: "the power fails here"},
		modeltest.Turn{Calls: []model.Call{insertCall("2", "two")}}, modeltest.Turn{Text: "Both are written."})
	b.table()
	b.plan.Jobs["j"] = plan.Job{Name: "j", Agent: "clerk", Prompt: "Write two rows."}
	id := b.enqueue(ledger.Request{Job: "j", Agent: "clerk"})
	b.run(id)
	if err := b.ledger.Interrupt(t.Context(), ledger.Attempt{Run: id, Number: 1}, "killed", nil); err != nil {
		t.Fatal(err)
	}

	res := b.run(id)
	if res.Outcome != domain.OutcomeSuccess || res.Summary != "Both are written." || b.count() != 2 {
		t.Errorf("%+v, %d rows", res, b.count())
	}
	if sent := string(b.server.Requests()[2]); !strings.Contains(sent, `"tool_call_id":"1"`) || strings.Count(sent, "Write two rows.") != 1 {
		t.Errorf("the transcript was not sent: %s", sent)
	}
	if first := string(b.server.Requests()[0]); !strings.Contains(first, "What was done") {
		t.Errorf("the model was not told of its tables: %s", first)
	}
}

// TestBoundsGoOn checks that an attempt that continues a run has only the rest of the run's bounds.
func TestBoundsGoOn(t *testing.T) {
	t.Parallel()
	b := setup(t, modeltest.Turn{Calls: []model.Call{insertCall("1", "again")}})
	b.table()
	b.plan.Jobs["j"] = plan.Job{Name: "j", Agent: "clerk", Prompt: "Write for ever.", Bounds: loop.Bounds{Steps: 3}}
	id := b.enqueue(ledger.Request{Job: "j", Agent: "clerk"})
	if res := b.run(id); res.Outcome != domain.OutcomeBudget || b.count() != 3 {
		t.Fatalf("%+v, %d rows", res, b.count())
	}
	if err := b.ledger.Interrupt(t.Context(), ledger.Attempt{Run: id, Number: 1}, "killed before the end was recorded", nil); err != nil {
		t.Fatal(err)
	}
	if res := b.run(id); res.Outcome != domain.OutcomeBudget || b.count() != 4 {
		t.Errorf("%+v, %d rows; the last step is left to end properly, and no more", res, b.count())
	}
}

// TestSecretsAreNotKept checks that no part of a secret is recorded, even if another secret begins
// with it.
func TestSecretsAreNotKept(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.enqueue(ledger.Request{Agent: "clerk", Detail: ledger.TriggerDetail{Tool: "todo", Args: json.RawMessage(`{"markdown":"- [ ] sk-canary-and-more sk-canary"}`)}})
	b.run(id)
	calls, err := b.ledger.Steps.Calls(t.Context(), id)
	if err != nil || len(calls) != 1 || string(calls[0].Args) != `{"markdown":"- [ ] [secret] [secret]"}` {
		t.Errorf("%+v (%v)", calls, err)
	}
}

// TestPendingCallIsFinishedOnce checks that a call without a result after a power failure is
// executed by the next attempt before the model is asked again. The database's journal prevents a
// second execution.
func TestPendingCallIsFinishedOnce(t *testing.T) {
	t.Parallel()
	b := setup(t, modeltest.Turn{Text: "Done."})
	b.table()
	b.plan.Jobs["j"] = plan.Job{Name: "j", Agent: "clerk", Prompt: "Write a row."}
	id := b.enqueue(ledger.Request{Job: "j", Agent: "clerk"})
	_, a, err := b.ledger.StartAttempt(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}

	c := insertCall("1", "one")
	c.Key = "m1.1.1"
	message, err := json.Marshal(model.Message{Role: model.RoleAssistant, Calls: []model.Call{c}})
	if err != nil {
		t.Fatal(err)
	}

	now := time.Now()
	for _, err := range []error{
		b.ledger.Steps.StartStep(t.Context(), a, steps.Step{Number: 1, StartedAt: now}),
		b.ledger.Steps.FinishStep(t.Context(), a, steps.Step{Number: 1, Message: message, FinishedAt: now}),
		b.ledger.Steps.StartCall(t.Context(), a, ledger.Call{Step: 1, ID: "1", Key: c.Key, Tool: "db_insert", Args: c.Args, Effect: domain.EffectDatabase, StartedAt: now}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}

	// The row was committed, but its result was not recorded.
	db, release, err := b.pool.Get(t.Context(), "clerk")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Insert(t.Context(), changelog.By{Run: id, Key: c.Key}, "log", []map[string]any{{"what": "one"}}); err != nil {
		t.Fatal(err)
	}

	release()
	if err := b.ledger.Interrupt(t.Context(), a, "killed", nil); err != nil {
		t.Fatal(err)
	}
	if res := b.run(id); res.Outcome != domain.OutcomeSuccess || b.count() != 1 {
		t.Errorf("%+v, %d rows", res, b.count())
	}
}

// TestPlaybookIsTriedAgain checks that a failed playbook is retried from its beginning, and that
// its writes are not repeated.
func TestPlaybookIsTriedAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.table()
	b.plan.Jobs["j"] = plan.Job{Name: "j", Agent: "clerk", Playbook: []playbook.Call{
		{Name: "db_insert", With: map[string]any{"table": "log", "row": map[string]any{"what": "{{ .Job }}"}}},
		{Name: "file_read", With: map[string]any{"path": "later.txt"}},
	}}
	id := b.enqueue(ledger.Request{Job: "j", Agent: "clerk"})
	res := b.run(id)
	if res.Outcome != domain.OutcomeError || !strings.Contains(res.Error, "call 2 (file_read) failed: not_found") {
		t.Fatalf("%+v", res)
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

// TestRefusals checks that an impossible run ends with the reason, and that the host continues.
func TestRefusals(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for name, c := range map[string]struct {
		request ledger.Request
		job     plan.Job
		outcome domain.Outcome
		say     string
	}{
		"unknown job":   {ledger.Request{Job: "gone", Agent: "clerk"}, plan.Job{}, domain.OutcomeError, `the job "gone" is no longer in the configuration`},
		"unknown agent": {ledger.Request{Agent: "nobody", Detail: ledger.TriggerDetail{Prompt: "x"}}, plan.Job{}, domain.OutcomeError, `the agent "nobody" is no longer`},
		"no model":      {ledger.Request{Agent: "plain", Detail: ledger.TriggerDetail{Prompt: "x"}}, plan.Job{}, domain.OutcomeError, "has no model"},
		"a template":    {ledger.Request{Job: "j"}, plan.Job{Name: "j", Agent: "clerk", Prompt: "{{ .File.Path }}"}, domain.OutcomeError, `uses "File", which this run does not have`},
		"a file gone":   {ledger.Request{Job: "j", Detail: ledger.TriggerDetail{File: &ledger.File{Path: filepath.Join(b.dir, "none.csv")}}}, plan.Job{Name: "j", Agent: "clerk", Prompt: "x"}, domain.OutcomeSkipped, "is gone"},
		"a tool that was denied": {ledger.Request{Agent: "plain", Detail: ledger.TriggerDetail{Tool: "db_query", Args: json.RawMessage(`{"sql":"select 1"}`)}}, plan.Job{}, domain.OutcomeError,
			"tool_not_found"},
	} {
		t.Run(name, func(t *testing.T) {
			b.t = t
			b.plan.Jobs = map[string]plan.Job{"j": c.job}
			res := b.run(b.enqueue(c.request))
			if res.Outcome != c.outcome || !strings.Contains(res.Error, c.say) {
				t.Errorf("%+v", res)
			}
		})
	}
}

// TestFileThatChanged checks that a run does not get a file that changed after it was accepted.
func TestFileThatChanged(t *testing.T) {
	t.Parallel()
	b := setup(t)
	path := filepath.Join(b.dir, "a.csv")
	if err := os.WriteFile(path, []byte("new"), 0o600); err != nil {
		t.Fatal(err)
	}

	b.plan.Jobs["j"] = plan.Job{Name: "j", Agent: "clerk", Prompt: "x"}
	res := b.run(b.enqueue(ledger.Request{Job: "j", Detail: ledger.TriggerDetail{File: &ledger.File{Path: path, Size: 3, Hash: "of the old"}}}))
	if res.Outcome != domain.OutcomeSkipped || !strings.Contains(res.Error, "has changed") {
		t.Errorf("%+v", res)
	}
}

func TestBlocked(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.plan.Jobs["j"] = plan.Job{Name: "j", Agent: "plain", Prompt: "x"}
	b.plan.Jobs["p"] = plan.Job{Name: "p", Agent: "plain", Playbook: []playbook.Call{{Name: "todo"}}}
	b.runner.Set(b.plan)
	if why := record.ObstaclesText(b.runner.Blockers.Obstacles(t.Context(), ledger.Run{Job: "j"})); !strings.HasPrefix(why, "no_model") {
		t.Errorf("a prompt without a model: %q", why)
	}
	if why := record.ObstaclesText(b.runner.Blockers.Obstacles(t.Context(), ledger.Run{Job: "p"})); why != "" {
		t.Errorf("a playbook: %q", why)
	}
}

func TestNotices(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.plan.Jobs["j"] = plan.Job{Name: "j", Agent: "clerk", Notify: plan.Notify{On: []string{"error"}, Channels: []string{"desktop", "ops"}, Title: "{{ .Job }} says {{ .Outcome }}", Body: "{{ .Nonsense }}"}}
	b.runner.Set(b.plan)
	run := ledger.Run{ID: 7, Job: "j", Attempt: 1}
	if n := b.told(run, ledger.Result{Outcome: domain.OutcomeSuccess}); len(n) != 0 {
		t.Errorf("told of a success: %+v", n)
	}

	n := b.told(run, ledger.Result{Outcome: domain.OutcomeError, Error: "no such table"})
	if len(n) != 2 || n[0].Title != "j says error" || !strings.Contains(n[0].Body, "no such table") || n[1].Channel != "ops" {
		t.Errorf("%+v", n)
	}
}

// TestStopHasItsReason checks that a run whose context was canceled ends as cancelled, if it
// returns a result.
func TestStopHasItsReason(t *testing.T) {
	t.Parallel()
	b := setup(t, modeltest.Turn{Text: "late"})
	b.plan.Jobs["j"] = plan.Job{Name: "j", Agent: "clerk", Prompt: "x"}
	b.runner.Set(b.plan)
	run, a, err := b.ledger.StartAttempt(t.Context(), b.enqueue(ledger.Request{Job: "j", Agent: "clerk"}))
	if err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	res, err := b.runner.Execute(ctx, run, a)
	if err == nil && res.Outcome != domain.OutcomeCancelled {
		t.Errorf("%+v", res)
	}
}
