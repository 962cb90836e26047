package main

import (
	"path/filepath"
	"strings"
	"testing"

	"rouse/agent/model"
	"rouse/agent/model/modeltest"
	"rouse/agentdb/changelog"
	"rouse/cmd/internal/api"
	"rouse/cmd/internal/cmdtest"
	"rouse/cmd/internal/endtoend"
)

// TestUndoOfACancelledQuestion checks OSA-61: undo_on_failure also undoes a run that was cancelled
// while it waited for an answer and had no active attempt.
func TestUndoOfACancelledQuestion(t *testing.T) {
	t.Parallel()
	s := modeltest.New(t,
		modeltest.Turn{Calls: []model.Call{{ID: "1", Name: "db_create_table", Args: []byte(`{"name":"half","purpose":"p","columns":[{"name":"a","type":"TEXT"}]}`)}}},
		modeltest.Turn{Calls: []model.Call{{ID: "2", Name: "db_insert", Args: []byte(`{"table":"half","row":{"a":"x"}}`)}}},
		modeltest.Turn{Calls: []model.Call{{ID: "3", Name: "clarify", Args: []byte(`{"question":"Which account?"}`)}}},
	)

	text := `version: 1
home: ./home
models: [{name: scripted, provider: openai, model: scripted, base_url: "` + s.URL + `/v1", api_key: none}]
agents: [{name: clerk}]
jobs: [{name: books, agent: clerk, undo_on_failure: true, prompt: Do the books.}]
`

	config := filepath.Join(cmdtest.Write(t, map[string]string{"rouse.yaml": text}), "rouse.yaml")
	endtoend.Serve(t, config)
	endtoend.RunJSON(t, nil, "run", "books", "--json", "--config", config)
	var items []api.Item
	cmdtest.Until(t, "the run asks", func() bool {
		endtoend.RunJSON(t, &items, "inbox", "--json", "--config", config)
		return len(items) == 1
	})
	var schema api.Schema
	if endtoend.RunJSON(t, &schema, "db", "clerk", "schema", "--json", "--config", config); len(schema.Tables) != 1 {
		t.Fatalf("while it waits: %+v", schema)
	}

	endtoend.RunJSON(t, nil, "cancel", items[0].Run, "--json", "--config", config)
	if endtoend.RunJSON(t, &schema, "db", "clerk", "schema", "--json", "--config", config); len(schema.Tables) != 0 {
		t.Errorf("after it was cancelled: %+v", schema)
	}

	p := endtoend.Rouse(t, "logs", "--config", config)
	if err := p.Run(); err != nil || !strings.Contains(p.Out.String(), "run.undone") {
		t.Errorf("%v: %s", err, &p.Out)
	}
}

// TestUndoSaysWhatIsLost checks the wording for later changes: "in the way" before an undo with
// --force, and "lost" after it.
func TestUndoSaysWhatIsLost(t *testing.T) {
	d := changelog.Undone{Changes: 1, Conflicts: []changelog.Conflict{{Table: "t", Key: `{"id":1}`, Why: "it was changed later"}}, ConflictCount: 3}
	for done, want := range map[bool]string{
		false: "in the way: t {\"id\":1}: it was changed later\nin the way: 2 more\n",
		true:  "lost: t {\"id\":1}: it was changed later\nlost: 2 more\n",
	} {
		var b strings.Builder
		if err := printUndo(&b, api.Undo{Run: "2", Agent: "ann", Done: done, Database: d}, api.UndoRequest{Force: done}); err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(b.String(), want) {
			t.Errorf("done %v: %s", done, b.String())
		}
	}
}
