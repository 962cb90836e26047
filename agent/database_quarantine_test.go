package agent_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rouse/agent/model/playbook"
	"rouse/agent/plan"
	"rouse/agentdb"
	"rouse/agentdb/pool"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/inbox"
	"rouse/internal/ledger/record"
)

// TestDamagedDatabase checks that the run that finds a damaged database puts the remedy into its
// record and the inbox. Later runs wait until the database is restored. Runs without a database
// continue.
func TestDamagedDatabase(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.table()
	b.plan.Jobs["j"] = plan.Job{Name: "j", Agent: "clerk", Playbook: []playbook.Call{{Name: "db_query", With: map[string]any{"sql": "select count(*) from log"}}}}
	b.plan.Jobs["p"] = plan.Job{Name: "p", Agent: "plain", Playbook: []playbook.Call{{Name: "todo", With: map[string]any{"markdown": "- [ ] x"}}}}
	b.runner.Set(b.plan)
	db, release, err := b.pool.Get(t.Context(), "clerk")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Backups.Make(t.Context(), agentdb.BackupSpec{}); err != nil {
		t.Fatal(err)
	}

	release()
	if err := b.pool.Close(); err != nil {
		t.Fatal(err)
	}

	path := filepath.Join(b.dir, "agents", "clerk", "db.sqlite")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	data[len(data)/2] ^= 1
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}

	b.newPool()
	held := func(job string) string {
		return record.ObstaclesText(b.runner.Blockers.Obstacles(t.Context(), ledger.Run{Job: job, Agent: b.plan.Jobs[job].Agent}))
	}
	if why := held("j"); why != "" {
		t.Errorf("held before anybody looked: %s", why)
	}

	res := b.run(b.enqueue(ledger.Request{Job: "j", Agent: "clerk"}))
	const remedy = "rouse db clerk restore last"
	if res.Outcome != domain.OutcomeError || !strings.Contains(res.Error, remedy) {
		t.Errorf("%+v", res)
	}

	items, err := b.ledger.Inbox.List(t.Context())
	if err != nil || len(items) != 1 || items[0].Kind != inbox.KindInfo || !strings.Contains(items[0].Message, remedy) {
		t.Errorf("%+v, %v", items, err)
	}
	if why := held("j"); !strings.Contains(why, remedy) {
		t.Errorf("not held: %q", why)
	}
	if why := held("p"); why != "" {
		t.Errorf("an agent without a database: %q", why)
	}

	if _, err := b.pool.Recovery.Restore(t.Context(), "clerk", pool.RestoreSpec{From: "last"}); err != nil {
		t.Fatal(err)
	}
	if why := held("j"); why != "" {
		t.Errorf("still held: %q", why)
	}
	if res := b.run(b.enqueue(ledger.Request{Job: "j", Agent: "clerk"})); res.Outcome != domain.OutcomeSuccess {
		t.Errorf("%+v", res)
	}
}
