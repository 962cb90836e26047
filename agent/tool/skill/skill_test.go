package skill_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rouse/agent/model"
	"rouse/agent/tool"
	"rouse/agent/tool/skill"
	"rouse/internal/contract"
	"rouse/internal/domain"
	"rouse/skills"
)

// find creates skills and finds them.
func find(t *testing.T, names ...string) *skills.Catalog {
	t.Helper()
	root := t.TempDir()
	for _, name := range names {
		path := filepath.Join(root, name, "SKILL.md")
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("---\nname: "+name+"\ndescription: Is about "+name+".\n---\nUse "+name+".\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	return skills.Discover(skills.Root{Path: root, Trusted: true})
}

func many(n int, more ...string) []string {
	for i := range n {
		more = append(more, fmt.Sprintf("s%d", i))
	}
	return more
}

func registry(t *testing.T, o skill.Options) *tool.Registry {
	t.Helper()
	tools, err := skill.New(o).Tools()
	if err != nil {
		t.Fatal(err)
	}

	r, err := tool.NewRegistry(tools...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func call(t *testing.T, r *tool.Registry, name, args string) tool.Envelope {
	t.Helper()
	e, err := r.Call(t.Context(), tool.Invocation{}, name, json.RawMessage(args))
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// TestCapabilitiesLoad: OSA-20, the result lists loaded ids, and a warning names each failed id. If
// all fail, the result is the first failure. A loaded skill is not a failure, and a skill that is
// not granted is rejected. OSA-13: the loop stores its errors.
func TestCapabilitiesLoad(t *testing.T) {
	row := contract.Of(t, "OSA-20")
	all := find(t, many(30, "csv", "tax")...)
	given := all.Skills()[:22] // csv and some of the others
	one, err := tool.Define(tool.Spec{Name: "db_query", Description: "asks", Effect: domain.EffectRead, Class: tool.ClassOther}, func(_ context.Context, _ tool.Invocation, _ struct {
		SQL string `json:"sql"`
	}) (tool.Envelope, error) {
		return tool.Success("x"), nil
	})
	if err != nil {
		t.Fatal(err)
	}

	granted, err := tool.NewRegistry(one)
	if err != nil {
		t.Fatal(err)
	}

	for name, c := range map[string]struct {
		ids      string
		kind     tool.Kind // "" for a success
		want     []string
		warnings int
	}{
		"a skill":             {fmt.Sprintf("[%q]", row.Quote("skill/csv")), "", []string{`"loaded":["skill/csv"]`, "Use csv."}, 0},
		"in other letters":    {`["skill/CSV"]`, "", []string{`"loaded":["skill/csv"]`}, 0},
		"twice":               {`["skill/csv","skill/csv"]`, "", []string{`"loaded":["skill/csv"]`, `"already_loaded":["skill/csv"]`}, 0},
		"a tool":              {fmt.Sprintf("[%q]", row.Quote("tool/db_query")), "", []string{`"loaded":["tool/db_query"]`}, 0},
		"a tool by its name":  {`["db_query"]`, "", []string{`"loaded":["tool/db_query"]`}, 0},
		"partly":              {`["skill/none","tool/db_query","skill/tax"]`, "", []string{`"loaded":["tool/db_query"]`}, 2},
		"none":                {`["skill/none","skill/tax"]`, tool.KindNotFound, nil, 0},
		"not granted":         {`["skill/tax","skill/none"]`, tool.Kind(row.Quote("rejected")), nil, 0},
		"a tool not granted":  {`["tool/file_write"]`, tool.KindRejected, nil, 0},
		"a tool that is none": {`["tool/file_wrte"]`, tool.KindToolNotFound, nil, 0},
		"no id":               {`["csv"]`, tool.KindInvalidArgs, nil, 0},
		"nothing":             {`[]`, tool.KindInvalidArgs, nil, 0},
		"a path in a name":    {`["skill/../../etc"]`, tool.KindNotFound, nil, 0},
		"an absolute one":     {`["skill//etc/passwd"]`, tool.KindNotFound, nil, 0},
		"with a control sign": {`["skill/a\u0000b"]`, tool.KindNotFound, nil, 0},
	} {
		r := registry(t, skill.Options{View: all.View(skills.AccessPreloaded, given), Tools: granted, Denied: []string{"file_write"}, Unlisted: tool.NewUnlisted([]string{"db_query"})})
		e := call(t, r, row.Quote("capabilities_load"), fmt.Sprintf(`{%q:%s}`, row.Quote("ids"), c.ids))
		if load, _ := r.Lookup("capabilities_load"); load.Class() != tool.ClassLoad {
			t.Fatalf("the loop takes it for one of the class %s", load.Class())
		}
		if e.OK != (c.kind == "") || e.Kind != c.kind || len(e.Warnings) != c.warnings {
			t.Errorf("%s: %+v", name, e)
		}

		for _, part := range c.want {
			if !strings.Contains(string(e.Result), part) {
				t.Errorf("%s: %q is not in %s", name, part, e.Result)
			}
		}
	}
}

// TestCapabilitiesDiscover: OSA-20, the best hits of each query come first, and at most eight
// queries are accepted.
func TestCapabilitiesDiscover(t *testing.T) {
	r := registry(t, skill.Options{View: find(t, many(30, "invoices", "taxes")...).View("", nil)})
	e := call(t, r, "capabilities_discover", `{"query":"an invoice","queries":["tax"]}`)
	if text := string(e.Result); !strings.Contains(text, `"found":[{"id":"skill/invoices","description":"Is about invoices."},{"id":"skill/taxes"`) {
		t.Errorf("%s", text)
	}
	if e := call(t, r, "capabilities_discover", `{"query":"zebra"}`); !e.OK || string(e.Result) != `{"found":[]}` || len(e.Warnings) != 1 {
		t.Errorf("%+v", e)
	}

	for _, args := range []string{`{}`, `{"query":"  "}`, `{"queries":["a","b","c","d","e","f","g","h","i"]}`} {
		if e := call(t, r, "capabilities_discover", args); e.Kind != tool.KindInvalidArgs {
			t.Errorf("%s: %+v", args, e)
		}
	}
}

// TestLoadSkill: AGS-07, AGS-09, AUT-04, AUT-07, UNI-07, the schema lists the names of a few
// skills. A repeated load returns a note unless the content is requested again. A path finds a
// skill that the agent has, and Verify can refuse each skill.
func TestLoadSkill(t *testing.T) {
	row, again := contract.Of(t, "AUT-04"), contract.Of(t, "AGS-12").Quote("is loaded already")
	unknown := fmt.Sprintf("%s %q here, and %s %q", row.Quote("no skill of the name"), "nope", row.Quote("no skill at the path"), "nope")
	if tools, err := skill.New(skill.Options{}).Tools(); err != nil || tools != nil {
		t.Errorf("without skills there are %v (%v)", tools, err)
	}

	few := registry(t, skill.Options{View: find(t, "csv", "tax").View("", nil)})
	if names := strings.Join(few.Names(), " "); names != "load_skill" {
		t.Errorf("two skills come with %s", names)
	}
	if e := call(t, few, "load_skill", `{"skill_name":"nope"}`); string(e.Kind) != row.Quote("not_found") || !strings.Contains(e.Message, unknown+"; the skills are csv, tax") {
		t.Errorf("%+v", e)
	}

	// The path of a known skill, from its content and the index, although the model is told the
	// names.
	here := find(t, "csv", "tax")
	known := registry(t, skill.Options{View: here.View("", nil)})
	told := string(known.ModelTools()[0].Schema)
	for _, name := range []string{"csv", "tax"} {
		s, _ := here.Get(name)
		path := map[string]string{"csv": s.Dir, "tax": s.File}[name]
		args, err := json.Marshal(map[string]string{row.Quote("skill_name"): path})
		if err != nil {
			t.Fatal(err)
		}
		if e := call(t, known, row.Quote("load_skill"), string(args)); !e.OK || !strings.Contains(string(e.Result), row.Quote("Root Path: ")+s.Dir) || !strings.Contains(string(e.Result), row.Quote("./scripts/run.sh")) || !strings.Contains(told, `"`+name+`"`) {
			t.Errorf("%s: %+v, a model is told %s", path, e, told)
		}
	}

	// An agent with a list of skills can only load these, by name and by path.
	csv, _ := here.Get("csv")
	tax, _ := here.Get("tax")
	given := registry(t, skill.Options{View: here.View("", []*skills.Skill{csv})})
	for name, want := range map[string]tool.Kind{"csv": "", csv.Dir: "", "tax": tool.KindRejected, tax.Dir: tool.KindNotFound, tax.File: tool.KindNotFound} {
		args, err := json.Marshal(map[string]string{"skill_name": name})
		if err != nil {
			t.Fatal(err)
		}
		if e := call(t, given, "load_skill", string(args)); e.Kind != want {
			t.Errorf("%s of another: %+v", name, e)
		}
	}

	all := find(t, many(30, "csv", "tax")...)
	s, _ := all.Get("csv")
	bad := errors.New("was changed")
	r := registry(t, skill.Options{View: all.View("", nil), Loaded: skill.NewLoadedSet("s1"), Verify: func(s *skills.Skill) error {
		if s.Name == "tax" {
			return bad
		}
		return nil
	}})

	for _, c := range []struct {
		args, want string
		kind       tool.Kind
	}{
		{`{"skill_name":"csv"}`, "<skill_content name=", ""},
		{`{"skill_name":"csv"}`, again, ""},
		{`{"skill_name":"csv","again":true}`, "<skill_content name=", ""},
		{`{"skill_name":"s1"}`, "is loaded already", ""},
		{`{"skill_name":"tax"}`, "was changed", tool.KindRejected},
		{`{"skill_name":"nope"}`, `no skill of the name "nope" here, and no skill at the path "nope"; there are 32 skills`, tool.KindNotFound},
		{`{"skill_name":"/etc"}`, `no skill at the path "/etc"`, tool.KindNotFound},
	} {
		if e := call(t, r, "load_skill", c.args); e.Kind != c.kind || !strings.Contains(string(e.Result)+e.Message, c.want) {
			t.Errorf("%s: %+v, want %s", c.args, e, c.want)
		}
	}

	plain, err := json.Marshal(map[string]any{"skill_name": s.Dir})
	if err != nil {
		t.Fatal(err)
	}
	if e := call(t, r, "load_skill", string(plain)); !e.OK || !strings.Contains(string(e.Result), "is loaded already") {
		t.Errorf("by its path, after its name: %+v", e)
	}

	path, err := json.Marshal(map[string]any{"skill_name": s.Dir, "again": true})
	if err != nil {
		t.Fatal(err)
	}
	if e := call(t, r, "load_skill", string(path)); !e.OK {
		t.Errorf("%+v", e)
	}
	if err := os.Remove(s.File); err != nil {
		t.Fatal(err)
	}

	if e := call(t, r, "load_skill", string(path)); e.Kind != tool.KindUnavailable || !strings.Contains(e.Message, "csv") {
		t.Errorf("a skill that is gone: %+v", e)
	}
}

// TestLoadedIn: AGS-12, a transcript lists the loaded skills, and no text that only looks similar.
func TestLoadedIn(t *testing.T) {
	var messages []model.Message
	for _, result := range []any{
		map[string]string{"skill": "csv", "skill_content": "x"}, map[string]any{"loaded": []string{"skill/tax", "tool/db_query"}, "skill_content": "x"},
		map[string]any{"text": `"skill_content":`, "note": "x"}, map[string]string{"skill": "noted", "note": "is loaded already"},
	} {
		text, err := tool.Success(result).MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		messages = append(messages, model.Message{Role: model.RoleTool, Text: string(text)})
	}

	messages = append(messages, model.Message{Role: model.RoleUser, Text: messages[0].Text})
	if got := strings.Join(skill.LoadedIn(messages), " "); got != "csv tax" {
		t.Errorf("%s", got)
	}
}
