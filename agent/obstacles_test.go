package agent_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"rouse/agent/model/modeltest"
	"rouse/agent/model/playbook"
	"rouse/agent/plan"
	"rouse/agent/tool/shell"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/record"
)

// TestRefusedModel checks that a server that rejects the key or lacks the model is asked once.
// Other runs wait. A run that a user starts tries the model, and an answer releases all runs. After
// a crash the refusal is restored from the record.
func TestRefusedModel(t *testing.T) {
	t.Parallel()
	for name, status := range map[string]int{"the key": http.StatusUnauthorized, "the model": http.StatusNotFound} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				refused := modeltest.Turn{Status: status, Raw: `{"error":{"message":"no, with sk-canary"}}`}
				b, _ := cabled(t, refused, modeltest.Turn{Text: "Done."})
				if res, _ := b.conclude(b.triggered(domain.TriggerSchedule)); res.Outcome != domain.OutcomeError {
					t.Fatalf("%+v", res)
				}

				all := b.runner.Blockers.Obstacles(t.Context(), ledger.Run{Job: "mail", Agent: "clerk", Trigger: domain.TriggerSchedule})
				if len(all) != 1 || all[0].Kind != "model" || all[0].Source != "model/scripted" || !strings.Contains(all[0].Text, "its server refused it") || strings.Contains(all[0].Text, "sk-canary") {
					t.Fatalf("%+v", all)
				}
				if why := record.ObstaclesText(b.runner.Blockers.Obstacles(t.Context(), ledger.Run{Job: "mail", Agent: "clerk", Trigger: domain.TriggerManual})); why != "" {
					t.Errorf("a person's run: %s", why)
				}
				b.newPool()
				b.runner.Models.RestoreRefusals(map[string]string{"scripted": all[0].Text})
				if again := b.runner.Blockers.Obstacles(t.Context(), ledger.Run{Job: "mail"}); len(again) != 1 || again[0].Text != all[0].Text {
					t.Errorf("after a restart: %+v", again)
				}

				if res, _ := b.conclude(b.triggered(domain.TriggerManual)); res.Outcome != domain.OutcomeSuccess {
					t.Fatalf("%+v", res)
				}
				if why := b.runner.Blockers.Obstacles(t.Context(), ledger.Run{Job: "mail"}); len(why) != 0 || len(b.server.Requests()) != 2 {
					t.Errorf("then: %+v, %d requests", why, len(b.server.Requests()))
				}
			})
		})
	}
}

// TestChecks checks that every check finds its obstacle, and notices when it is gone. A manual call
// is not blocked.
func TestChecks(t *testing.T) {
	t.Parallel()
	b := setup(t)
	dir := t.TempDir()
	plain := b.plan.Agents["plain"]
	for name, c := range map[string]struct {
		agent  func(*plan.Agent)
		job    func(*plan.Job)
		kind   string
		source string
	}{
		"configured": {func(a *plan.Agent) {
			a.Obstacles = []ledger.Obstacle{{Kind: "secret", Source: "secret/x", Text: "the secret x is not set"}}
		}, nil, "secret", "secret/x"},
		"of the job": {nil, func(j *plan.Job) { j.Obstacles = []ledger.Obstacle{{Kind: "secret", Source: "secret/y", Text: "z"}} }, "secret", "secret/y"},
		"read":       {func(a *plan.Agent) { a.Read = []string{filepath.Join(dir, "gone")} }, nil, "folder", "folder/" + filepath.Join(dir, "gone")},
		// A playbook needs only the granted programs that it names.
		"program": {func(a *plan.Agent) {
			a.Commands = []shell.Grant{{Argv: []string{"no-such-program-here", "*"}}, {Argv: []string{"nor-such-a-program"}}}
		}, func(j *plan.Job) {
			j.Playbook = []playbook.Call{{Name: "shell_run", With: map[string]any{"command": "no-such-program-here x"}}}
		}, "program", "program/no-such-program-here"},
		"watched": {nil, func(j *plan.Job) { j.Watched.Folder = filepath.Join(dir, "drops") }, "folder", "folder/" + filepath.Join(dir, "drops")},
		"prompt":  {nil, func(j *plan.Job) { j.Playbook, j.Prompt = nil, "x" }, "no_model", "no_model/plain"},
	} {
		t.Run(name, func(t *testing.T) {
			a, j := plain, plan.Job{Name: "j", Agent: "plain", Playbook: []playbook.Call{{Name: "todo"}}}
			if c.agent != nil {
				c.agent(&a)
			}
			if c.job != nil {
				c.job(&j)
			}
			b.plan.Agents["plain"], b.plan.Jobs["j"] = a, j
			b.runner.Set(b.plan)
			all := b.runner.Blockers.Obstacles(t.Context(), ledger.Run{Job: "j"})
			if len(all) != 1 || all[0].Kind != c.kind || all[0].Source != c.source {
				t.Errorf("%+v", all)
			}
			call := ledger.Run{Agent: "plain", Detail: []byte(`{"tool":"todo"}`)}
			if why := record.ObstaclesText(b.runner.Blockers.Obstacles(t.Context(), call)); why != "" {
				t.Errorf("a manual call is blocked: %s", why)
			}
		})
	}

	// A new folder is noticed at the next check, and the check does not create it.
	b.plan.Agents["plain"], b.plan.Jobs["j"] = plain, plan.Job{Name: "j", Agent: "plain", Playbook: []playbook.Call{{Name: "todo"}}, Watched: plan.Watched{Folder: filepath.Join(dir, "drops")}}
	b.runner.Set(b.plan)
	if len(b.runner.Blockers.Obstacles(t.Context(), ledger.Run{Job: "j"})) != 1 {
		t.Fatal("it is not blocked")
	}
	if err := os.Mkdir(filepath.Join(dir, "drops"), 0o755); err != nil {
		t.Fatal(err)
	}
	if cleared, rest := b.runner.Blockers.Recheck(t.Context()); !cleared || rest < time.Second || len(b.runner.Blockers.Obstacles(t.Context(), ledger.Run{Job: "j"})) != 0 {
		t.Errorf("cleared: %v, rests %s", cleared, rest)
	}
}
