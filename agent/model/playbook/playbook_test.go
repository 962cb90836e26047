package playbook_test

import (
	"encoding/json"
	"strings"
	"testing"

	"rouse/agent/model"
	"rouse/agent/model/playbook"
)

// play runs a playbook against a function that answers its calls.
func play(t *testing.T, calls []playbook.Call, data map[string]any, answer func(model.Call) string) ([]model.Call, model.End) {
	t.Helper()
	p, err := playbook.New(playbook.Options{Calls: calls, Data: data})
	if err != nil {
		t.Fatal(err)
	}
	var made []model.Call
	var results []model.Result
	for range 100 {
		for e, err := range p.Stream(t.Context(), model.Request{Results: results}) {
			if err != nil {
				t.Fatal(err)
			}
			if e.End != nil {
				return made, *e.End
			}
			made = append(made, *e.Call)
			results = []model.Result{{Call: *e.Call, Envelope: json.RawMessage(answer(*e.Call))}}
		}
	}
	t.Fatal("the playbook does not end")
	return nil, model.End{}
}

func imported(model.Call) string {
	return `{"ok":true,"result":{"table":"expenses","rows_imported":3,"rows":[{"category":"food","total":9.5}]}}`
}

func TestPlay(t *testing.T) {
	calls := []playbook.Call{
		{Name: "db_import", With: map[string]any{"table": "expenses", "path": "{{ .File.Path }}"}, Save: "imported"},
		{Name: "skipped", If: "imported.rows_imported > 5"},
		{Name: "notify", If: "imported.rows_imported > 0", With: map[string]any{
			"title": "{{ .imported.rows_imported }} expenses", "n": "= imported.rows_imported + 1", "deep": []any{map[string]any{"c": "{{ (index .imported.rows 0).category }}"}}}},
	}
	// A name that looks like a template is data.
	data := map[string]any{"File": struct{ Path string }{"/in/{{ .imported }}.csv"}}
	made, end := play(t, calls, data, imported)
	if end.Outcome != "success" || end.Summary != "db_import: 3 rows into expenses; skipped skipped; notify: 3 rows into expenses" {
		t.Errorf("end: %+v", end)
	}
	if len(made) != 2 || made[0].Key != "p1" || made[1].Key != "p3" {
		t.Fatalf("calls: %+v", made)
	}
	if got := string(made[0].Args); got != `{"path":"/in/{{ .imported }}.csv","table":"expenses"}` {
		t.Errorf("arguments: %s", got)
	}
	if got := string(made[1].Args); got != `{"deep":[{"c":"food"}],"n":4,"title":"3 expenses"}` {
		t.Errorf("arguments: %s", got)
	}
}

func TestEach(t *testing.T) {
	calls := []playbook.Call{{Name: "a", Each: "= names", With: map[string]any{"name": "{{ .item }}", "i": "= index"}}, {Name: "none", Each: []any{}}, {Name: "b"}}
	made, end := play(t, calls, map[string]any{"names": []any{"x", "y"}}, func(model.Call) string { return `{"ok":true,"result":{}}` })
	if len(made) != 3 || made[0].Key != "p1.1" || made[1].Key != "p1.2" || made[2].Key != "p3" || string(made[1].Args) != `{"i":1,"name":"y"}` {
		t.Errorf("calls: %+v (%+v)", made, end)
	}
}

func TestFailures(t *testing.T) {
	refuse := func(model.Call) string { return `{"ok":false,"kind":"not_found","message":"no such table"}` }
	for name, c := range map[string]struct {
		call    playbook.Call
		outcome string
		say     string
	}{
		"a call fails":       {playbook.Call{Name: "db_query", Line: 12}, "error", "call 1 (db_query, line 12) failed: not_found: no such table"},
		"and may":            {playbook.Call{Name: "db_query", OnError: "continue"}, "success", ""},
		"a missing name":     {playbook.Call{Name: "x", With: map[string]any{"a": "{{ .File.Path }}"}}, "error", `uses "File", which this run does not have; it has Job`},
		"a wrong expression": {playbook.Call{Name: "x", If: "nobody.rows > 1"}, "error", "unknown name nobody"},
		"not a condition":    {playbook.Call{Name: "x", If: "1 + 1"}, "error", "neither true nor false"},
		"not a list":         {playbook.Call{Name: "x", Each: "= 5"}, "error", "not a list"},
	} {
		t.Run(name, func(t *testing.T) {
			_, end := play(t, []playbook.Call{c.call}, map[string]any{"Job": "j"}, refuse)
			if end.Outcome != c.outcome || !strings.Contains(end.Error, c.say) {
				t.Errorf("end: %+v", end)
			}
		})
	}
}

func TestCheck(t *testing.T) {
	problems := playbook.Check([]playbook.Call{
		{Name: "ok", With: map[string]any{"a": "{{ .Job }}", "b": "= 1 + x"}, Save: "x"},
		{With: map[string]any{"a": "{{ .Job"}},
		{Name: "c", If: "1 +", OnError: "explode", Save: "Job"},
	}, []string{"Job"})
	var text []string
	for _, p := range problems {
		text = append(text, p.Error())
	}
	all := strings.Join(text, "\n")
	for _, say := range []string{"call 2 has no call:", "the template of with.a is broken", "the expression of if is broken", "explode", "hides a name"} {
		if !strings.Contains(all, say) {
			t.Errorf("%q is missing in:\n%s", say, all)
		}
	}
	if len(problems) != 5 {
		t.Errorf("%d problems:\n%s", len(problems), all)
	}
}

func FuzzExpand(f *testing.F) {
	f.Add("{{ .Job }} {{ range .rows }}{{ . }}{{ end }}")
	f.Fuzz(func(t *testing.T, text string) {
		if strings.Contains(text, "template") || strings.Contains(text, "define") {
			return // a template that calls itself is bounded by text/template's own depth, slowly
		}
		_, _ = playbook.Expand("fuzz", text, map[string]any{"Job": "j", "rows": []any{1, 2}})
		playbook.Check([]playbook.Call{{Name: "x", With: map[string]any{"a": text}, If: text}}, nil)
	})
}
