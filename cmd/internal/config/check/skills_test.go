package check_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"rouse/cmd/internal/config"
	"rouse/cmd/internal/config/configtest"
	"rouse/internal/contract"
	"rouse/skills"
)

func skill(name string) string {
	return "---\nname: " + name + "\ndescription: Does " + name + ".\n---\nDo it.\n"
}

func skillNames(list []*skills.Skill) string {
	var out []string
	for _, s := range list {
		out = append(out, s.Name)
	}
	return strings.Join(out, " ")
}

// A playbook with workspace calls needs an agent with a skill that keeps workspaces.
func TestWorkspaceCalls(t *testing.T) {
	const call = "home: state\nagents: [{name: clerk}]\njobs: [{name: j, agent: clerk, playbook: [{call: workspace_manage, with: {action: list}}]}]\n"
	for text, want := range map[string]string{
		skill("trips"): `no skill of the agent "clerk" keeps workspaces, so it has no workspace_manage`,
		strings.Replace(skill("trips"), "---\nDo", "metadata: {workspace: required}\n---\nDo", 1): "",
	} {
		_, err := configtest.Load(configtest.Write(t, "rouse.yaml", call, "state/skills/trips/SKILL.md", text), nil)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("with %q: %v, want %s", text, err, want)
		}
	}
}

// TestSkills checks that an agent gets the skills that it names, without those that others can
// write, and sees further skills according to skill_access.
func TestSkills(t *testing.T) {
	given, access := contract.Of(t, "AUT-05"), contract.Of(t, "AUT-07")
	agents := fmt.Sprintf(`home: state
agents:
  - {name: all, workdir: desk}
  - {name: given, %s: [%s, %s]}
  - {name: both, skills: [csv], skill_access: %s}
  - {name: none, skill_access: %s}
  - {name: only, skills: [csv], skill_access: %s}
`, given.Quote("skills"), given.Quote("CSV"), given.Quote("./own/tax"), access.Quote("global_discovery"), access.Quote("none"), access.Quote("preloaded_only"))

	path := configtest.Write(t, "rouse.yaml", agents+"skills: {roots: [{path: more}, {path: less, trusted: false}]}\n",
		"state/skills/csv/SKILL.md", skill("csv"), "state/skills/both/SKILL.md", skill("both"), "more/both/SKILL.md", skill("both"),
		"own/tax/SKILL.md", skill("tax"), ".agents/skills/project/SKILL.md", skill("project"), "less/untrusted/SKILL.md", skill("untrusted"), "desk/.agents/skills/desk/SKILL.md", skill("desk"),
		"user/.agents/skills/user/SKILL.md", skill("user"), "more/broken/SKILL.md", "---\nname: broken\n---\n")
	dir := filepath.Dir(path)
	cfg, err := configtest.Load(path, map[string]string{"HOME": filepath.Join(dir, "user")})
	if err != nil {
		t.Fatal(err)
	}

	want := map[string][2]string{"all": {"", "both csv user"}, "given": {"csv tax", ""}, "both": {"csv", "both user"}, "none": {"", ""}, "only": {"csv", ""}}
	for i := range cfg.Agents {
		a := &cfg.Agents[i]
		if v := cfg.FoundSkills().View(a); [2]string{skillNames(v.Preloaded), skillNames(v.Loadable)} != want[string(a.Name)] {
			t.Errorf("%s: preloaded %q, others %q, want %q", a.Name, skillNames(v.Preloaded), skillNames(v.Loadable), want[string(a.Name)])
		}
	}

	var order []string // lowest precedence first
	for _, r := range cfg.SkillRoots(func(key string) string { return map[string]string{"HOME": filepath.Join(dir, "user")}[key] }) {
		order = append(order, r.Source)
	}
	if want := []string{"home", "user", "project", "workdir of all"}; len(order) < 4 || !slices.Equal(order[:4], want) {
		t.Errorf("skills are looked for in %q, want %q first", order, want)
	}

	if s, ok := cfg.FoundSkills().Catalog().Get("both"); !ok || filepath.Base(filepath.Dir(s.Dir)) != "more" {
		t.Errorf("a root that the configuration names does not override the home's: %+v", s)
	}

	var said []string
	for _, w := range cfg.Warnings {
		said = append(said, w.String())
	}

	for _, part := range []string{"broken", "description-missing", "(shadowed)", "less", ".agents", "(untrusted)"} {
		if !strings.Contains(strings.Join(said, "\n"), part) {
			t.Errorf("%q is not said in\n%s", part, strings.Join(said, "\n"))
		}
	}

	if i := slices.IndexFunc(cfg.Warnings, func(p config.Problem) bool { return strings.Contains(p.Message, "description-missing") }); i < 0 || cfg.Warnings[i].Line == 0 || filepath.Base(cfg.Warnings[i].File) != "SKILL.md" {
		t.Errorf("the broken skill has no place: %v", cfg.Warnings)
	}
}

// An unknown skill of an agent is an error that suggests the nearest name.
func TestSkillMistakes(t *testing.T) {
	path := configtest.Write(t, "rouse.yaml", "home: state\nskills: {roots: [{path: team}]}\nagents:\n  - {name: a, workdir: desk, skills: [csw, ./gone, csv, Csv, ./own, '']}\n  - {name: b, skills: [csv], skill_access: none}\n",
		"team/csv/SKILL.md", skill("csv"), "own/SKILL.md", skill("own"))
	_, err := configtest.Load(path, nil)
	var all *config.Errors
	if !errors.As(err, &all) {
		t.Fatal(err)
	}

	for i, part := range []string{`there is no skill "csw"; did you mean "csv"?`, "gone cannot be loaded: it does not exist (path-missing)", "is named twice", "agents[0].skills[5]: is empty", "is none, and the agent names skills"} {
		if i >= len(all.Problems) || !strings.Contains(all.Problems[i].String(), part) {
			t.Errorf("%q is not problem %d of\n%v", part, i, err)
		}
	}
}

// A skill that is added, changed or removed changes the sources, so that a daemon reloads.
func TestSkillSources(t *testing.T) {
	path := configtest.Write(t, "rouse.yaml", "home: state\nagents:\n  - {name: a}\n", "state/skills/csv/SKILL.md", skill("csv"))
	old, err := configtest.Load(path, nil)
	if err != nil {
		t.Fatal(err)
	}

	file := filepath.Join(filepath.Dir(path), "state", "skills", "csv", "SKILL.md")
	change := func(what, want string, do func() error) {
		t.Helper()
		was := old.Sources.Digest()
		if was != old.Sources.Now().Digest() {
			t.Fatalf("before %s: the sources have changed by themselves", what)
		}
		if err := do(); err != nil {
			t.Fatal(err)
		}
		if was == old.Sources.Now().Digest() {
			t.Errorf("%s: the sources have not changed", what)
		}

		next, err := configtest.Load(path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(config.Compare(old, next).Others, " "); got != want {
			t.Errorf("%s: %q, want %q", what, got, want)
		}

		old = next
	}

	change("other words", "skill csv", func() error {
		return os.WriteFile(file, []byte(strings.Replace(skill("csv"), "Does", "Makes", 1)), 0o600)
	})
	change("another time", "", func() error { return os.Chtimes(file, time.Time{}, time.Unix(1, 0)) })
	change("one more", "skill new", func() error {
		dir := filepath.Join(filepath.Dir(filepath.Dir(file)), "new")
		return errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, "SKILL.md"), []byte(skill("new")), 0o600))
	})
	change("none", "skill csv", func() error { return os.RemoveAll(filepath.Dir(file)) })
}

// TestSkillAllowedTools checks the commands that skills allow like the grants of the agent, and
// the warnings about commands that they request in vain.
func TestSkillAllowedTools(t *testing.T) {
	asking := func(tools string) string {
		return "---\nname: x\ndescription: Is x.\nallowed-tools: " + tools + "\n---\n"
	}
	files := []string{"rouse.yaml", "home: state\nagents:\n  - {name: a, skill_allowed_tools: true, tools: {on_demand: [db_*]}}\n  - {name: b}\n  - {name: c, tools: {on_demand: [db_*], deny: [capabilities_load]}}\n",
		"state/skills/x/SKILL.md", asking("Read Bash(git log:*) Bash(python3:*) WebFetch Bash")}
	cfg, err := configtest.Load(configtest.Write(t, files...), nil)
	if err != nil {
		t.Fatal(err)
	}

	var said []string
	for _, w := range cfg.Warnings {
		_, text, _ := strings.Cut(w.String(), "agents[")
		said = append(said, text)
	}

	want := []string{
		"0].skill_allowed_tools: warning: the skill x allows python3 *: python3 runs what its arguments say, so that this is any program",
		"0].skill_allowed_tools: warning: of what the skill x asks for this allows nothing: WebFetch, Bash",
		"2].tools.on_demand: warning: the agent may not use capabilities_discover",
	}
	if len(said) != len(want) {
		t.Fatalf("%q", said)
	}

	for i, part := range want {
		if !slices.ContainsFunc(said, func(s string) bool { return strings.HasPrefix(s, part) }) {
			t.Errorf("%d: %q is not in %q", i, part, said)
		}
	}
}
