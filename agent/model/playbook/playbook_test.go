package playbook_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"rouse/agent/model"
	"rouse/agent/model/modeltest"
	"rouse/agent/model/playbook"
)

// play runs a playbook with a function that answers its calls.
func play(t testing.TB, calls []playbook.Call, data map[string]any, answer func(model.Call) string) ([]model.Call, model.End) {
	t.Helper()
	p, err := playbook.New(playbook.Options{Calls: calls, Data: data})
	if err != nil {
		t.Fatal(err)
	}
	return playWith(t, p, answer)
}

func playWith(t testing.TB, p *playbook.Provider, answer func(model.Call) string) ([]model.Call, model.End) {
	t.Helper()
	var made []model.Call
	var results []model.Result
	for range 1000 {
		a := modeltest.Ask(t, t.Context(), p, model.Request{Results: results})
		switch {
		case a.Err != nil:
			t.Fatal(a.Err)
		case a.End != nil:
			return made, *a.End
		case len(a.Calls) != 1:
			t.Fatalf("one turn makes %d calls", len(a.Calls))
		}

		call := a.Calls[0]
		if call.ID != call.Key {
			t.Errorf("the call %s has the id %s", call.Key, call.ID)
		}

		made = append(made, call)
		results = []model.Result{{Call: call, Envelope: json.RawMessage(answer(call))}}
	}

	t.Fatal("the playbook does not end")
	return nil, model.End{}
}

// written formats calls as key name(arguments).
func written(calls []model.Call) string {
	var out []string
	for _, c := range calls {
		out = append(out, fmt.Sprintf("%s %s(%s)", c.Key, c.Name, c.Args))
	}
	return strings.Join(out, "\n")
}

func with(args string) map[string]any {
	var out map[string]any
	if err := json.Unmarshal([]byte(args), &out); err != nil {
		panic(err)
	}
	return out
}

func ok(result string) func(model.Call) string {
	return func(model.Call) string { return `{"ok":true,"result":` + result + `}` }
}

func TestConformance(t *testing.T) {
	modeltest.Run(t, func(t *testing.T, s modeltest.Script, _ modeltest.Limits) model.Provider {
		var calls []playbook.Call
		for _, turn := range s {
			if len(turn.Calls) != 1 || turn.Text != "" || turn.Faulty() {
				t.Skip("a playbook makes one call a turn, and does nothing else")
			}
			calls = append(calls, playbook.Call{Name: turn.Calls[0].Name, With: with(string(turn.Calls[0].Args))})
		}

		p, err := playbook.New(playbook.Options{Calls: calls})
		if err != nil {
			t.Fatal(err)
		}

		return p
	})
}

// TestPlay plays the example of the README.
func TestPlay(t *testing.T) {
	results := map[string]string{
		"db_import": `{"table":"expenses","rows_imported":3}`,
		"db_query":  `{"columns":["category","total"],"rows":[{"category":"food","total":1234567.5},{"category":"rent","total":2}]}`,
		"notify":    `{"title":"3 expenses","channel":"desktop"}`,
	}

	made, end := play(t, []playbook.Call{
		{Name: "db_import", With: with(`{"table":"expenses","path":"{{ .File.Path }}"}`), Save: "imported"},
		{Name: "db_query", With: with(`{"sql":"select category, sum(amount) total from expenses group by 1"}`), Save: "totals"},
		{Name: "file_write", If: "imported.rows_imported > 5"},
		{Name: "notify", If: "imported.rows_imported > 0", With: with(`{"title":"{{ .imported.rows_imported }} expenses",
			"body":"Top: {{ (index .totals.rows 0).category }} {{ (index .totals.rows 0).total }}", "n":"= imported.rows_imported + 1", "deep":[{"rows":"= totals.rows"}]}`)},
	}, map[string]any{"File": struct{ Path string }{"/in/a.csv"}}, func(c model.Call) string { return ok(results[c.Name])(c) })

	const want = `p1 db_import({"path":"/in/a.csv","table":"expenses"})
p2 db_query({"sql":"select category, sum(amount) total from expenses group by 1"})
p4 notify({"body":"Top: food 1234567.5","deep":[{"rows":[{"category":"food","total":1234567.5},{"category":"rent","total":2}]}],"n":4,"title":"3 expenses"})`
	if got := written(made); got != want {
		t.Errorf("calls:\n%s\nwant:\n%s", got, want)
	}
	if want := (model.End{Outcome: "success", Summary: "db_import: 3 rows into expenses; db_query: 2 rows; file_write skipped; notify: 3 expenses"}); end != want {
		t.Errorf("end: %+v", end)
	}
}

func TestEach(t *testing.T) {
	made, end := play(t, []playbook.Call{
		{Name: "a", Each: "= split(names, ',')", With: with(`{"name":"{{ .item }}","i":"= index"}`), Save: "last"},
		{Name: "b", Each: []any{}, Save: "nothing"},
		{Name: "c", Each: "= 1..3", If: "item != 2", With: with(`{"n":"= item","last":"= last.id","none":"= nothing"}`)},
		{Name: "d", Each: []any{"{{ .names }}", "= 1 + 1"}, With: with(`{"v":"= item"}`)},
	}, map[string]any{"names": "x,y"}, func(c model.Call) string { return ok(`{"id":"` + c.Key + `"}`)(c) })

	const want = `p1.1 a({"i":0,"name":"x"})
p1.2 a({"i":1,"name":"y"})
p3.1 c({"last":"p1.2","n":1,"none":null})
p3.3 c({"last":"p1.2","n":3,"none":null})
p4.1 d({"v":"x,y"})
p4.2 d({"v":2})`
	if got := written(made); got != want {
		t.Errorf("calls:\n%s\nwant:\n%s", got, want)
	}
	if want := "a 2 times; b had no items; c 2 times, 1 skipped; d 2 times"; end.Summary != want {
		t.Errorf("summary: %s", end.Summary)
	}
}

// TestDataIsNotExpanded checks that a file name is data and is never expanded, also after it was
// saved.
func TestDataIsNotExpanded(t *testing.T) {
	for _, name := range []string{"{{ .secret }}.csv", "= 1 + 1", "{{"} {
		made, end := play(t, []playbook.Call{
			{Name: "a", With: with(`{"path":"{{ .name }}","same":"= name"}`), Save: "saved"},
			{Name: "b", With: with(`{"path":"{{ .saved.path }}","same":"= saved.path"}`)},
			{Name: "c", Each: "= [saved.path]", With: with(`{"path":"{{ .item }}"}`)},
		}, map[string]any{"name": name, "secret": "hunter2"}, func(c model.Call) string { return ok(string(c.Args))(c) })
		for _, c := range made {
			var args map[string]string
			if err := json.Unmarshal(c.Args, &args); err != nil || args["path"] != name {
				t.Errorf("%s gets %s", c.Key, c.Args)
			}
		}

		if len(made) != 3 || strings.Contains(end.Summary, "hunter2") {
			t.Errorf("%d calls: %+v", len(made), end)
		}
	}
}

func refuse(model.Call) string { return `{"ok":false,"kind":"not_found","message":"no such table"}` }

func TestFailures(t *testing.T) {
	data := map[string]any{"Job": "j", "rows": []any{map[string]any{"a": 1}}, "empty": map[string]any{}, "none": nil, "File": struct{ Path, Name string }{"p", "n"}}
	for name, c := range map[string]struct {
		call playbook.Call
		say  string
	}{
		"a call fails":         {playbook.Call{Line: 12}, "call 1 (x, line 12) failed: not_found: no such table"},
		"an item's call fails": {playbook.Call{Line: 12, Each: []any{1}}, "call 1 (x, line 12) for item 1 failed: not_found: no such table"},
		"not a condition":      {playbook.Call{If: "1 + 1"}, "if of call 1 (x) gives 2, which is neither true nor false"},
		"not a list":           {playbook.Call{Each: "= Job"}, `each of call 1 (x) gives "j", which is not a list`},
		"nothing as a list":    {playbook.Call{Each: "= none"}, "each of call 1 (x) gives nothing, which is not a list"},
		"too long a list":      {playbook.Call{Each: "= 1..10001"}, "10001 items, more than 10000"},
		"not JSON":             {playbook.Call{With: with(`{"a":"= 1 / 0"}`)}, "the arguments of call 1 (x) cannot be written as JSON"},
		"unknown name":         {playbook.Call{If: "nobody.rows > 1"}, `the expression of call 1 (x) if uses "nobody", which this run does not have; it has File, Job, empty, none, rows`},
		"nothing to compare":   {playbook.Call{With: with(`{"a":"= rows[0].b > 1"}`)}, "the expression of call 1 (x) with.a cannot be computed: invalid operation: <nil> > int"},
		"beyond the list":      {playbook.Call{With: with(`{"a":["= rows[7]"]}`)}, "the expression of call 1 (x) with.a[0] cannot be computed: index out of range: 7"},
		"no map":               {playbook.Call{Each: "= keys(rows)"}, `[{"a":1}] is no object`},
		"a bomb":               {playbook.Call{If: "len(repeat('x', 100000000)) > 1"}, "memory budget exceeded"},
	} {
		t.Run(name, func(t *testing.T) {
			c.call.Name = "x"
			if _, end := play(t, []playbook.Call{c.call}, data, refuse); end.Outcome != "error" || !strings.Contains(end.Error, c.say) {
				t.Errorf("end: %+v\nwant %s", end, c.say)
			}
		})
	}
}

// TestFailuresThatMayBe checks that later calls can test whether a call has failed.
func TestFailuresThatMayBe(t *testing.T) {
	made, end := play(t, []playbook.Call{
		{Name: "a", OnError: "continue", Save: "a"},
		{Name: "b", If: "a != nil && a.rows > 1", Save: "b"},
		{Name: "c", If: "a == nil && b == nil", With: with(`{"a":"[{{ .a }}]"}`), OnError: "continue", Each: []any{1, 2, 3}},
		{Name: "d"},
	}, nil, func(c model.Call) string {
		if c.Key == "p3.2" || c.Key == "p4" {
			return ok(`{"count":1}`)(c)
		}
		return refuse(c)
	})
	if got := written(made); got != "p1 a({})\np3.1 c({\"a\":\"[]\"})\np3.2 c({\"a\":\"[]\"})\np3.3 c({\"a\":\"[]\"})\np4 d({})" {
		t.Errorf("calls:\n%s", got)
	}
	if end.Outcome != "success" || end.Summary != "a failed (not_found) and was passed over; b skipped; c once: 1 row, 2 failed (not_found); d: 1 row" {
		t.Errorf("end: %+v", end)
	}
}

// TestStrangeResults checks that results of other calls and unreadable results are rejected.
func TestStrangeResults(t *testing.T) {
	for name, c := range map[string]struct {
		result model.Result
		say    string
	}{
		"another call": {model.Result{Call: model.Call{Key: "p2"}, Envelope: json.RawMessage(`{"ok":true}`)}, "call 1 (a) gave no result"},
		"no JSON":      {model.Result{Call: model.Call{Key: "p1"}, Envelope: json.RawMessage(`{`)}, "the result of call 1 (a) cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := playbook.New(playbook.Options{Calls: []playbook.Call{{Name: "a"}, {Name: "b"}}})
			if err != nil {
				t.Fatal(err)
			}

			modeltest.Ask(t, t.Context(), p, model.Request{})
			a := modeltest.Ask(t, t.Context(), p, model.Request{Results: []model.Result{c.result}})
			if a.End == nil || a.End.Outcome != "error" || !strings.Contains(a.End.Error, c.say) {
				t.Errorf("answer: %+v", a.End)
			}
		})
	}
}

// TestNumbers checks that numbers keep their type between a result and arguments.
func TestNumbers(t *testing.T) {
	const result = `{"big":9007199254740993,"max":9223372036854775807,"small":0.1,"whole":2.0,"huge":1e300}`
	made, _ := play(t, []playbook.Call{
		{Name: "a", Save: "r"},
		{Name: "b", With: with(`{"big":"= r.big","max":"= r.max","small":"= r.small","whole":"= r.whole","huge":"= r.huge"}`)},
		{Name: "c", With: with(`{"t":"{{ .r.big }} {{ .r.small }} {{ .r.whole }}","i":"= r.big == 9007199254740993"}`)},
	}, nil, ok(result))
	if got := string(made[1].Args); got != `{"big":9007199254740993,"huge":1e+300,"max":9223372036854775807,"small":0.1,"whole":2}` {
		t.Errorf("arguments: %s", got)
	}
	if got := string(made[2].Args); got != `{"i":true,"t":"9007199254740993 0.1 2"}` {
		t.Errorf("arguments: %s", got)
	}
}

func TestSummaries(t *testing.T) {
	for result, want := range map[string]string{
		`{"table":"t","rows_imported":1}`:               "x: 1 row into t",
		`{"rows":[]}`:                                   "x: 0 rows",
		`{"ids":[1,2],"count":2}`:                       "x: 2 rows",
		`{"path":"out/a.md","text":"long"}`:             "x: out/a.md",
		`{"id":7}`:                                      "x: 7",
		`{"text":"` + strings.Repeat(`\na`, 100) + `"}`: "x: " + strings.Repeat("a ", 29) + "a…",
		`"word"`: "x",
		`null`:   "x",
	} {
		if _, end := play(t, []playbook.Call{{Name: "x"}}, nil, ok(result)); end.Summary != want {
			t.Errorf("%s is summed up as %q, want %q", result, end.Summary, want)
		}
	}
}

// TestNew checks that a playbook with a mistake is not started.
func TestNew(t *testing.T) {
	for say, calls := range map[string][]playbook.Call{
		"no calls": nil,
		"call 2 (y): the template of with.a is broken": {{Name: "x"}, {Name: "y", With: with(`{"a":"{{ .Job"}`)}},
	} {
		if _, err := playbook.New(playbook.Options{Calls: calls}); err == nil || !strings.Contains(err.Error(), say) {
			t.Errorf("%v, want %q", err, say)
		}
	}
}

func TestCheck(t *testing.T) {
	problems := playbook.Check([]playbook.Call{
		{Name: "ok", With: with(`{"a":"{{ .Job }}","b":"= 1 + x","c":[{"d":"{{ range .rows }}{{ . }}{{ end }}"}]}`), Save: "x", Each: "= keys(x)", If: "x.y?.z"},
		{With: with(`{"a":"{{ .Job"}`)},
		{Name: "c", Line: 9, If: "1 +", OnError: "explode", Save: "Job"},
		{Name: "d", Save: "my-rows", Each: []any{"{{ nope }}"}, With: with(`{"b":["= ("],"a":"{{ template \"x\" }}"}`)},
		{Name: "e", Save: "item", Each: "= " + strings.Repeat("-", 9000) + "1", With: with(`{"a":"{{ define \"x\" }}{{ end }}"}`)},
		{Name: "f", Save: "last", If: "last.id + count > 1", Each: "= nope(1)", With: with(`{"a":"= now()","b":"= let x = 1; x + last","c":"= len(1, 2)","d":"= 1 + 'a'"}`)},
	}, []string{"Job"})

	want := []string{
		"call 2: it has no call: with the name of a tool",
		"call 2: the template of with.a is broken: with.a:1: unclosed action",
		`call 3 (c, line 9): on_error "explode" is neither fail nor continue`,
		"call 3 (c, line 9): the expression of if is broken: unexpected token EOF (1:3)",
		`call 3 (c, line 9): save "Job" hides a name that every run has`,
		`call 4 (d): the template of each[0] is broken: each[0]:1: function "nope" not defined; did you mean "ne"?`,
		"call 4 (d): the template of with.a uses define, block or template, which are not available: a template stands for itself",
		"call 4 (d): the expression of with.b[0] is broken: unexpected token EOF (1:1)",
		`call 4 (d): save "my-rows" is not a name: letters, digits and _, and no digit first`,
		"call 5 (e): the expression of each is longer than 8192 bytes",
		"call 5 (e): the template of with.a uses define, block or template, which are not available: a template stands for itself",
		`call 5 (e): save "item" hides what each gives`,
		"call 6 (f): the expression of each is broken: unknown name nope (1:1); did you mean \"none\"?",
		"call 6 (f): the expression of with.a is broken: unknown name now (1:1)",
		"call 6 (f): the expression of with.c is broken: invalid number of arguments (expected 1, got 2) (1:1)",
		"call 6 (f): the expression of with.d is broken: invalid operation: + (mismatched types int and string) (1:3)",
	}

	var got []string
	for _, p := range problems {
		got = append(got, p.Error())
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("problems:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestResume checks that a resumed attempt starts at the first call. It requests recorded calls
// again under the same keys, and then continues.
func TestResume(t *testing.T) {
	calls := []playbook.Call{
		{Name: "a", Save: "a"},
		{Name: "b", Each: "= keys(a)", If: "a[item] > 10", With: with(`{"k":"{{ .item }}","v":"= a[item]"}`), Save: "b", OnError: "continue"},
		{Name: "c", If: "b != nil", With: with(`{"pairs":"= toPairs(a)","values":"= values(a)","text":"{{ .a }}"}`)},
	}
	rapid.Check(t, func(rt *rapid.T) {
		results := map[string]string{}
		answer := func(c model.Call) string {
			if results[c.Key] == "" {
				raw, err := json.Marshal(rapid.MapOf(rapid.StringMatching("[a-z]{1,4}"), rapid.IntRange(0, 20)).Draw(rt, "result"))
				if err != nil {
					rt.Fatal(err)
				}

				results[c.Key] = ok(string(raw))(c)
				if c.Name == "b" && rapid.Bool().Draw(rt, "fails") {
					results[c.Key] = refuse(c)
				}
			}
			return results[c.Key]
		}

		first, end := play(t, calls, nil, answer)
		again, end2 := play(t, calls, nil, answer)
		if written(first) != written(again) || end != end2 {
			rt.Errorf("first:\n%s\n%+v\nagain:\n%s\n%+v", written(first), end, written(again), end2)
		}
	})
}

// thing is an item that may be removed.
type thing struct {
	Path string
	gone bool
}

func (t thing) Removed() bool { return t.gone }

// TestAbsentItems checks that a removed item keeps its position, so that the other items keep the
// keys of their calls. No call is made for it, unless a call is already on record.
func TestAbsentItems(t *testing.T) {
	things := []thing{{"a", false}, {"b", true}, {"c", true}, {"d", false}}
	for name, c := range map[string]struct{ each, want string }{
		"as they are": {"= Things", "p1.1 take({\"path\":\"a\"})\np1.3 take({\"path\":\"c\"})\np1.4 take({\"path\":\"d\"})"},
		"some":        {"= filter(Things, .Path != 'c')", "p1.1 take({\"path\":\"a\"})\np1.3 take({\"path\":\"d\"})"},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := playbook.New(playbook.Options{Calls: []playbook.Call{{Name: "take", Each: c.each, With: with(`{"path": "{{ .item.Path }}"}`), Save: "last"}},
				Data: map[string]any{"Things": things}, Recorded: func(key string) (json.RawMessage, bool) { return nil, key == "p1.3" }})
			if err != nil {
				t.Fatal(err)
			}

			made, end := playWith(t, p, ok(`{}`))
			if got := written(made); got != c.want || end.Outcome != "success" || !strings.Contains(end.Summary, "skipped") {
				t.Errorf("%s\n%+v, want\n%s", got, end, c.want)
			}
		})
	}
}
