package agent_test

import (
	"encoding/json"
	"path/filepath"
	"testing"

	"rouse/agent/model/playbook"
	"rouse/agent/plan"
	"rouse/internal/domain"
	"rouse/internal/ledger"
)

// TestLabelsFollowTransfers checks that a moved or copied file keeps its labels at its new path,
// and the run gets them.
func TestLabelsFollowTransfers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		tool, letters, from, to, read string
	}{
		{"file_move", "A", "note.txt", "kept/other.txt", "kept/other.txt"},
		{"file_copy", "A", "note.txt", "kept/other.txt", "kept/other.txt"},
		{"file_copy", "B", "note.txt", "kept/other.txt", "kept/other.txt"},
		{"file_move", "AB", "sub", "kept/sub", "kept/sub/deep.txt"},
		{"file_copy", "AB", "sub", "kept/sub", "kept/sub/deep.txt"},
	} {
		b := setup(t)
		b.put("plain/note.txt", "a", "plain/sub/deep.txt", "a", "plain/clean.txt", "a")
		b.label(c.letters, b.at("plain/note.txt"), b.at("plain/sub/deep.txt"))
		b.plan.Jobs["j"] = plan.Job{Name: "j", Agent: "plain", Playbook: []playbook.Call{{Name: c.tool, With: map[string]any{"from": c.from, "to": c.to}}}}
		id := b.enqueue(ledger.Request{Job: "j", Agent: "plain"})
		if res := b.ends(id); res.Outcome != domain.OutcomeSuccess {
			t.Errorf("%+v: %+v", c, res)
		}
		if got := b.met(id); got != c.letters {
			t.Errorf("%+v: the run has %q", c, got)
		}
		for path, want := range map[string]string{c.read: c.letters, "clean.txt": ""} {
			args, err := json.Marshal(map[string]string{"path": path})
			if err != nil {
				t.Fatal(err)
			}
			reader := b.enqueue(ledger.Request{Agent: "plain", Detail: ledger.TriggerDetail{Tool: "file_read", Args: args}})
			b.ends(reader)
			if got := b.met(reader); got != want {
				t.Errorf("%+v: %s brought %q, want %q", c, path, got, want)
			}
		}
	}
}

// TestTransfersAreOwnOutputs checks that a file that a run moves or copies into the watched folder
// of its own job does not start the job again.
func TestTransfersAreOwnOutputs(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"file_move", "file_copy"} {
		b := setup(t)
		b.put("work/a.csv", "a\n", "work/sub/b.csv", "b\n", "work/in/old.csv", "old\n")
		in := filepath.Join(b.dir, "work", "in")
		b.plan.Jobs["j"] = plan.Job{Name: "j", Agent: "clerk", Watched: plan.Watched{Folder: in, Recursive: true}, Playbook: []playbook.Call{
			{Name: name, With: map[string]any{"from": "a.csv", "to": "in/"}},
			{Name: name, With: map[string]any{"from": "sub", "to": "in/sub"}},
		}}
		id := b.enqueue(ledger.Request{Job: "j", Agent: "clerk"})
		res := b.run(id)
		if res.Outcome != domain.OutcomeSuccess {
			t.Fatalf("%s: %+v", name, res)
		}
		b.finish(id, 1, res)
		for path, content := range map[string]string{"a.csv": "a\n", "sub/b.csv": "b\n"} {
			if c, ok := b.own("j", filepath.Join(in, path), content); !ok || c.Run != id {
				t.Errorf("%s: %s is not its own: %+v", name, path, c)
			}
		}
		if _, ok := b.own("j", filepath.Join(in, "old.csv"), "old\n"); ok {
			t.Errorf("%s: what was there before is known as its own", name)
		}
	}
}
