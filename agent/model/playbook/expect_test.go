package playbook_test

import (
	"strings"
	"testing"

	"rouse/agent/model"
	"rouse/agent/model/playbook"
)

// TestExpect checks expected exit codes, status codes and expressions. The tool is told not to
// judge codes itself.
func TestExpect(t *testing.T) {
	no, yes := false, true
	const (
		ran   = `{"program":"grep","lines":2,"stdout":"one\n","stderr":"two sk-canary\n","exit_code":1}`
		asked = `{"url":"https://example.com/","status":304,"text":""}`
	)
	for name, c := range map[string]struct {
		call         playbook.Call
		result       string
		args, say    string
		summary, end string
	}{
		"an exit code":      {playbook.Call{Expect: playbook.Expect{Exit: []int{0, 1}}}, ran, `{"must_succeed":false}`, "", "grep: exit 1, 2 lines", "success"},
		"another exit code": {playbook.Call{Line: 7, Expect: playbook.Expect{Exit: []int{0, 2}}}, ran, `{"must_succeed":false}`, "call 1 (x, line 7) failed: it expects exit code 0 or 2, and came to grep: exit 1, 2 lines; the last of them:\none\ntwo [secret]", "", "error"},
		"no exit code":      {playbook.Call{Expect: playbook.Expect{Exit: []int{0}}}, `{"id":7}`, `{"must_succeed":false}`, "call 1 (x) failed: it expects exit code 0, and came to x: 7", "", "error"},
		"a status":          {playbook.Call{With: with(`{"a":1}`), Expect: playbook.Expect{Status: []int{200, 304}}}, asked, `{"a":1,"must_succeed":false}`, "", "x: 304 from https://example.com/", "success"},
		"another status":    {playbook.Call{Expect: playbook.Expect{Status: []int{200}}}, asked, `{"must_succeed":false}`, "call 1 (x) failed: it expects status 200, and came to x: 304 from https://example.com/", "", "error"},
		"passed over":       {playbook.Call{OnError: "continue", Save: "r", Expect: playbook.Expect{Exit: []int{0}}}, ran, `{"must_succeed":false}`, "", "grep: exit 1, 2 lines, failed (unmet) and was passed over", "success"},
		"an expression":     {playbook.Call{Each: []any{7}, Expect: playbook.Expect{That: "result.exit_code == 1 and item == 7 and Job == 'j'"}}, ran, `{}`, "", "grep: exit 1, 2 lines", "success"},
		"a false one":       {playbook.Call{Expect: playbook.Expect{That: "len(result.rows) > 0"}}, `{"rows":[]}`, `{}`, "call 1 (x) failed: it expects that len(result.rows) > 0, and came to x: 0 rows", "", "error"},
		"of no short form":  {playbook.Call{Expect: playbook.Expect{That: "result.a == 2"}}, `{"a":1}`, `{}`, `call 1 (x) failed: it expects that result.a == 2, and came to x: {"a":1}`, "", "error"},
		"no truth":          {playbook.Call{OnError: "continue", Expect: playbook.Expect{That: "result.a"}}, `{"a":1}`, `{}`, "expect.that of call 1 (x) gives 1, which is neither true nor false", "", "error"},
		"not computed":      {playbook.Call{Expect: playbook.Expect{That: "result.a > 1"}}, `{"a":"b"}`, `{}`, "the expression of call 1 (x) expect.that cannot be computed", "", "error"},
		"rows left out":     {playbook.Call{Line: 7}, `{"table":"t","rows_imported":3,"rows_rejected":2,"sample_errors":["line 3: no number","line 4: no"]}`, `{}`, "call 1 (x, line 7) left out 2 rows: line 3: no number. Correct", "x: 3 rows into t, 2 left out", "partial"},
		"rows expected":     {playbook.Call{Expect: playbook.Expect{That: "result.rows_rejected < 3"}}, `{"table":"t","rows_imported":3,"rows_rejected":2}`, `{}`, "", "x: 3 rows into t, 2 left out", "success"},
		"rows of some":      {playbook.Call{Each: []any{1, 2}}, `{"table":"t","rows_imported":3,"rows_rejected":2}`, `{}`, "call 1 (x) for item 1 left out 2 rows. Correct", "x 2 times, 4 rows left out", "partial"},
		"must not":          {playbook.Call{MustSucceed: &no}, ran, `{"must_succeed":false}`, "", "grep: exit 1, 2 lines", "success"},
		"must":              {playbook.Call{MustSucceed: &yes, With: with(`{"a":1}`)}, `{"committed":false}`, `{"a":1,"must_succeed":true}`, "", "x: nothing to commit", "success"},
		"nothing said":      {playbook.Call{}, `{"committed":true,"files":2,"branch":"main"}`, `{}`, "", "x: 2 files on main", "success"},
	} {
		t.Run(name, func(t *testing.T) {
			c.call.Name = "x"
			p, err := playbook.New(playbook.Options{Calls: []playbook.Call{c.call}, Data: map[string]any{"Job": "j"}, Redact: func(text string) string { return strings.ReplaceAll(text, "sk-canary", "[secret]") }})
			if err != nil {
				t.Fatal(err)
			}

			made, end := playWith(t, p, ok(c.result))
			if len(made) == 0 || string(made[0].Args) != c.args {
				t.Errorf("calls: %s, want %s", written(made), c.args)
			}
			if string(end.Outcome) != c.end || end.Summary != c.summary || !strings.HasPrefix(end.Error, c.say) || (c.say == "") != (end.Error == "") {
				t.Errorf("end: %+v\nwant %s", end, c.say)
			}
		})
	}
}

// TestSummaryOfFailure checks that the summary of a failed playbook lists the calls made before the
// failure, and no others.
func TestSummaryOfFailure(t *testing.T) {
	p, err := playbook.New(playbook.Options{Calls: []playbook.Call{{Name: "a"}, {Name: "b", Each: []any{1, 2, 3}}, {Name: "c"}}})
	if err != nil {
		t.Fatal(err)
	}

	_, end := playWith(t, p, func(c model.Call) string {
		if c.Key == "p2.3" {
			return refuse(c)
		}
		return ok(`{"count":2}`)(c)
	})
	if want := "a: 2 rows; b 2 times"; end.Outcome != "error" || p.Summary() != want {
		t.Errorf("%+v, %q, want %q", end, p.Summary(), want)
	}
}

func TestCheckExpect(t *testing.T) {
	yes := true
	for say, c := range map[string]playbook.Call{
		"call 1 (x, line 3): the expression of expect.that is broken: unexpected token EOF (1:3)":  {Expect: playbook.Expect{That: "1 +"}},
		"call 1 (x, line 3): expect.exit 256 is no exit code: 0 to 255":                            {Expect: playbook.Expect{Exit: []int{0, 256}}},
		"call 1 (x, line 3): expect.status 20 is no status code: 100 to 599":                       {Expect: playbook.Expect{Status: []int{20}}},
		"call 1 (x, line 3): expect says already which ends are a success: leave must_succeed out": {MustSucceed: &yes, Expect: playbook.Expect{Exit: []int{0}}},
		"call 1 (x, line 3): must_succeed stands in the call and in with: say it once":             {MustSucceed: &yes, With: map[string]any{"must_succeed": true}},
	} {
		c.Name, c.Line = "x", 3
		problems := playbook.Check([]playbook.Call{c}, nil)
		if len(problems) != 1 || problems[0].Error() != say {
			t.Errorf("%v, want %s", problems, say)
		}
	}
}
