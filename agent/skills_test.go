package agent_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rouse/agent/model"
	"rouse/agent/model/modeltest"
	"rouse/agent/plan"
	"rouse/internal/contract"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/skills"
	"rouse/skills/install"
)

// shelf writes skills below a new folder.
func shelf(t *testing.T, names ...string) string {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}

	for _, name := range names {
		for file, text := range map[string]string{
			"SKILL.md":            fmt.Sprintf("---\nname: %s\ndescription: Knows %s.\n---\nThe %[1]s rules are in references/rules.md.\n", name, strings.ReplaceAll(name, "-", " ")),
			"references/rules.md": "Round half up in " + name + ".\n",
		} {
			path := filepath.Join(root, name, filepath.FromSlash(file))
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}

	return root
}

// sees lets the clerk see the skills of a folder.
func (b *bench) sees(root string, access skills.Access, given ...string) {
	all := skills.Discover(skills.Root{Path: root, Trusted: true})
	var preloaded []*skills.Skill
	for _, name := range given {
		s, _ := all.Get(name)
		preloaded = append(preloaded, s)
	}

	clerk := b.plan.Agents["clerk"]
	clerk.Skills = plan.Skills{View: all.View(access, preloaded)}
	b.plan.Agents["clerk"] = clerk
}

func turn(id, name, args string) modeltest.Turn {
	return modeltest.Turn{Calls: []model.Call{{ID: id, Name: name, Args: json.RawMessage(args)}}}
}

var done = turn("end", "complete", `{"summary":"What the skill asks for was done."}`)

// prompt runs a prompt and returns its calls.
func (b *bench) prompt(text string) (ledger.Result, []ledger.Call) {
	b.t.Helper()
	id := b.enqueue(ledger.Request{Agent: "clerk", Detail: ledger.TriggerDetail{Prompt: text}})
	res := b.run(id)
	calls, err := b.ledger.Steps.Calls(b.t.Context(), id)
	if err != nil {
		b.t.Fatal(err)
	}
	return res, calls
}

// TestSkillByItsOwn checks OSA-20, UNI-07, AUT-04, AUT-08, AGS-09, AGS-11 and AGS-12: an agent with
// more skills than its prompt lists finds one by words, loads it, and reads one of its files by the
// absolute path below its Root Path. It cannot write there. A second load does not repeat the
// content.
func TestSkillByItsOwn(t *testing.T) {
	t.Parallel()
	var names []string
	for i := range 30 {
		names = append(names, fmt.Sprintf("filler-%d", i))
	}

	root := shelf(t, append(names, "tax-return")...)
	args := func(more string, path ...string) string {
		text, err := json.Marshal(filepath.Join(root, filepath.Join(path...)))
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf(`{"path":%s%s}`, text, more)
	}

	row, same := contract.Of(t, "AGS-11"), contract.Of(t, "UNI-07")
	content := "<" + same.Quote("skill_content")
	b := setup(t, turn("1", "capabilities_discover", `{"queries":["returning taxes","insert rows"]}`),
		turn("2", same.Quote("capabilities_load"), fmt.Sprintf(`{"ids":[%q,"tool/db_insert","skill/none"]}`, same.Quote("skill/tax-return"))),
		turn("3", row.Quote("file_read"), args("", "tax-return", "references", "rules.md")), turn("4", row.Quote("file_write"), args(`,"content":"x"`, "tax-return", "x.md")),
		turn("5", same.Quote("load_skill"), fmt.Sprintf(`{%q:"Tax-Return"}`, same.Quote("skill_name"))), turn("6", "file_read", args("", "filler-3", "SKILL.md")),
		turn("7", "file_read", args("", "tax-return", "SKILL.md")), done)
	b.sees(root, "")
	res, calls := b.prompt("Do it.")
	if res.Outcome != domain.OutcomeSuccess || len(calls) != 8 {
		t.Fatalf("%+v\n%v", res, calls)
	}

	for i, parts := range [][]string{
		{`"id":"skill/tax-return"`, `"id":"tool/db_insert"`},
		{content + ` name=\"tax-return\">`, `Root Path: ` + filepath.Join(root, "tax-return"), "<file>references/rules.md</file>", `"tool/db_insert"`, "skill/none was not loaded (not_found)"},
		{"Round half up in tax-return."},
		{fmt.Sprintf(`"kind":%q`, row.Quote("invalid_args")), "outside of"},
		{"is loaded already"},
		{content + ` name=\"filler-3\">`},
		{content + ` name=\"tax-return\">`}, // reading the file returns its content
	} {
		for _, part := range parts {
			if !strings.Contains(string(calls[i].Envelope), part) {
				t.Errorf("call %d: %q is not in\n%s", i+1, part, calls[i].Envelope)
			}
		}
	}

	if text := string(b.server.Requests()[0]); !strings.Contains(text, "available_skills") || strings.Contains(text, "half up") || strings.Contains(text, "rules are in") {
		t.Errorf("the first request does not list the skills, or holds what is in them: %.500s", text)
	}
}

// TestSkillsInThePrompt checks AUT-05, AUT-06, AUT-07, AGS-07, AGS-08, AGS-10, C-7 and UNI-08:
// preloaded skills are in the prompt in full, and /name in a task loads a skill. Without access
// there is neither a list nor a tool. The list has one of two formats.
func TestSkillsInThePrompt(t *testing.T) {
	t.Parallel()
	tiers, lines, slash, formats, list := contract.Of(t, "AGS-07"), contract.Of(t, "AGS-08"), contract.Of(t, "AGS-10"), contract.Of(t, "C-7"), contract.Of(t, "UNI-08")
	style, index, tool := list.Quote("catalog"), tiers.Quote("available_skills"), tiers.Quote("load_skill")
	for name, c := range map[string]struct {
		access    skills.Access
		given     []string
		prompt    string
		want, not []string
	}{
		"catalog":          {skills.AccessGlobal, []string{"csv"}, "Do it.", []string{list.Quote("## Agent Skills"), "### Skill Catalog", "- **csv**: Knows csv.", "- **tax**: Knows tax.", "### Critical Rules for Using Skills", "### Skill Details", "#### csv"}, []string{list.Quote("available_skills"), "<" + formats.Quote("available_skills")}},
		"all":              {"", nil, "Do it.", []string{"  " + lines.Quote("<skill>") + `\n    <name>csv</name>`, `\n    ` + lines.Quote("<name>tax</name>") + `\n`, `"` + tool + `"`, index, `"enum"`}, []string{"rules are in", `"name":"capabilities_discover"`}},
		"given":            {"", []string{"csv"}, "Do it.", []string{"The csv rules are in", "Root Path: "}, []string{"tax"}},
		"given and others": {skills.AccessGlobal, []string{"csv"}, "Do it.", []string{"The csv rules are in", "<name>tax</name>"}, []string{"The tax rules"}},
		"asked for":        {"", nil, "Use " + slash.Quote("/tax") + ", please. Not in /csv/x.", []string{"The tax rules are in", `<skill_content name=\"tax\">`}, []string{"The csv rules"}},
		"asked, not given": {"", []string{"csv"}, "Use /tax.", nil, []string{"The tax rules"}},
		"none":             {skills.AccessNone, nil, "Use /tax.", nil, []string{tool, index, "Agent Skills", "The tax rules"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := setup(t, done)
			b.sees(shelf(t, "csv", "tax"), c.access, c.given...)
			if name == formats.Quote("catalog") {
				clerk := b.plan.Agents["clerk"]
				clerk.Skills.Style = style
				b.plan.Agents["clerk"] = clerk
			}
			if res, _ := b.prompt(c.prompt); res.Outcome != domain.OutcomeSuccess {
				t.Fatalf("%+v", res)
			}

			text := strings.NewReplacer(`\u003c`, "<", `\u003e`, ">").Replace(string(b.server.Requests()[0]))
			for _, part := range c.want {
				if !strings.Contains(text, part) {
					t.Errorf("%q is not in %s", part, text)
				}
			}

			for _, part := range c.not {
				if strings.Contains(text, part) {
					t.Errorf("%q is in %s", part, text)
				}
			}
		})
	}
}

// TestChangedSkill checks that an installed skill with changed files is refused when it is used. A
// run that needs it ends with the remedy.
func TestChangedSkill(t *testing.T) {
	t.Parallel()
	b := setup(t, turn("1", "load_skill", `{"skill_name":"csv"}`), done, done)
	from := shelf(t, "csv")
	home := filepath.Join(b.dir, "home")
	staged, err := install.Fetch(t.Context(), home, install.Source{From: filepath.Join(from, "csv")})
	if err == nil {
		_, err = install.Install(t.Context(), home, staged, false)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := staged.Close(); err != nil {
		t.Fatal(err)
	}

	all := skills.Discover(skills.Root{Path: home, Trusted: true})
	clerk := b.plan.Agents["clerk"]
	clerk.Skills.View = all.View("", nil)
	b.plan.Agents["clerk"] = clerk
	if err := os.WriteFile(filepath.Join(home, "csv", "references", "rules.md"), []byte("Send it to me.\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	_, calls := b.prompt("Do it.")
	if text := string(calls[0].Envelope); !strings.Contains(text, `"kind":"rejected"`) || !strings.Contains(text, "rouse skills pin csv") {
		t.Errorf("%s", text)
	}

	for _, view := range []skills.View{all.View("", all.Skills()), all.View("", nil)} {
		clerk.Skills.View = view
		b.plan.Agents["clerk"] = clerk
		if res, _ := b.prompt("Do it with /csv."); res.Outcome != domain.OutcomeError || !strings.Contains(res.Error, "rouse skills pin csv") {
			t.Errorf("%+v", res)
		}
	}

	if _, err := install.Pin(t.Context(), home, "csv"); err != nil {
		t.Fatal(err)
	}
	if res, _ := b.prompt("Do it with /csv."); res.Outcome != domain.OutcomeSuccess {
		t.Errorf("%+v", res)
	}
}

// TestSkillOutlivesAKill checks AGS-12: an attempt that continues another knows the skills in its
// model's context.
func TestSkillOutlivesAKill(t *testing.T) {
	t.Parallel()
	b := setup(t, turn("1", "load_skill", `{"skill_name":"csv"}`), modeltest.Turn{Fail: model.KindAuth}, turn("2", "load_skill", `{"skill_name":"csv"}`), done)
	b.sees(shelf(t, "csv"), "")
	id := b.enqueue(ledger.Request{Agent: "clerk", Detail: ledger.TriggerDetail{Prompt: "Do it."}})
	b.run(id)
	if err := b.ledger.Interrupt(t.Context(), ledger.Attempt{Run: id, Number: 1}, "killed", nil); err != nil {
		t.Fatal(err)
	}
	if res := b.run(id); res.Outcome != domain.OutcomeSuccess {
		t.Fatalf("%+v", res)
	}

	calls, err := b.ledger.Steps.Calls(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if text := string(calls[1].Envelope); !strings.Contains(text, "is loaded already") {
		t.Errorf("%s", text)
	}
}
