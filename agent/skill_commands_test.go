package agent_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"rouse/agent"
	"rouse/agent/model"
	"rouse/agent/model/modeltest"
	"rouse/agent/plan"
	"rouse/agent/sandbox"
	"rouse/agent/tool"
	"rouse/agent/tool/shell"
	"rouse/internal/contract"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/skills"
	"rouse/skills/install"
)

const counting = "#!/bin/sh\nwc -l < \"$1\"\n(: > \"$(dirname \"$0\")/left-behind\") 2>/dev/null || echo kept out\n"

// scripted writes a skill with a program, and returns the path of the program.
func scripted(t *testing.T, root, name, head string) (program string) {
	t.Helper()
	dir := filepath.Join(root, name)
	program = filepath.Join(dir, "scripts", "count.sh")
	for path, text := range map[string]string{
		filepath.Join(dir, "SKILL.md"):            fmt.Sprintf("---\nname: %s\ndescription: Counts the lines of a ledger book.\n%s---\nRead references/rules.md, then run scripts/count.sh FILE.\n", name, head),
		filepath.Join(dir, "references/rules.md"): "Empty lines count.\n",
		program: counting,
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}

	return program
}

// confined skips a test of programs if this machine cannot confine them.
func confined(t *testing.T) {
	t.Helper()
	box, err := sandbox.New(sandbox.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer box.Close()

	if tier, why := box.Tier(t.Context()); !tier.AtLeast(sandbox.TierLandlock) {
		t.Skip("nothing confines a program here: ", why)
	}
}

// folderWith returns the real path of a new folder with a file.
func folderWith(t *testing.T, name, text string) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func arguments(t *testing.T, args map[string]any) string {
	t.Helper()
	text, err := json.Marshal(args)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func (b *bench) clerk(change func(*plan.Agent)) {
	clerk := b.plan.Agents["clerk"]
	change(&clerk)
	b.plan.Agents["clerk"] = clerk
}

// TestSkillScript checks AUT-08, AGS-11 and UNI-07: an agent finds a skill by words, loads it,
// reads one of its files by a path below its root, and runs its program with the agent's grants.
// Programs and tools cannot change the skill, even in the agent's own folder.
func TestSkillScript(t *testing.T) {
	t.Parallel()
	confined(t)
	row := contract.Of(t, "AUT-08")
	rules := row.Quote("references/rules.md")
	for name, inside := range map[string]bool{"apart": false, "in the workdir": true} {
		t.Run(name, func(t *testing.T) {
			work, root := folderWith(t, "book.txt", "a\nb\nc\n"), folderWith(t, "x", "")
			if inside {
				root = filepath.Join(work, "skills")
			}

			for i := range 25 {
				scripted(t, root, fmt.Sprintf("filler-%d", i), "")
			}

			program := scripted(t, root, "line-counter", "")
			dir := filepath.Dir(filepath.Dir(program))
			b := setup(t,
				turn("1", "capabilities_discover", `{"query":"counting lines"}`),
				turn("2", "capabilities_load", `{"ids":["skill/line-counter"]}`),
				turn("3", row.Quote("file_read"), arguments(t, map[string]any{"path": filepath.Join(dir, filepath.FromSlash(rules))})),
				turn("4", row.Quote("shell_run"), arguments(t, map[string]any{"command": program + " book.txt"})),
				turn("5", "file_write", arguments(t, map[string]any{"path": program, "content": "x"})),
				done)

			b.sees(root, "")
			b.clerk(func(a *plan.Agent) {
				a.Workdir, a.Commands = work, []shell.Grant{{Argv: []string{program, "*"}}}
			})
			if inside {
				b.plan.Masks = tool.ProtectedPaths{ReadOnly: []string{root}}
			}

			res, calls := b.prompt("Count the lines of the book.")
			if res.Outcome != domain.OutcomeSuccess || len(calls) != 6 {
				t.Fatalf("%+v\n%v", res, calls)
			}

			for i, part := range []string{`"id":"skill/line-counter"`, "Root Path: " + dir, "Empty lines count.", `"stdout":"3\nkept out\n"`, `"ok":false`} {
				if !strings.Contains(string(calls[i].Envelope), part) {
					t.Errorf("call %d: %q is not in\n%s", i+1, part, calls[i].Envelope)
				}
			}

			if text, err := os.ReadFile(program); err != nil || string(text) != counting {
				t.Errorf("the program is %q (%v)", text, err)
			}
			if left, err := os.ReadDir(filepath.Dir(program)); err != nil || len(left) != 1 {
				t.Errorf("%v (%v)", left, err)
			}
		})
	}
}

// TestSkillWithinTheWorkdir checks AUT-08: a skill in the agent's own folder can be used but not
// changed.
func TestSkillWithinTheWorkdir(t *testing.T) {
	t.Parallel()
	confined(t)
	work := folderWith(t, "book.txt", "")
	program := scripted(t, work, "line-counter", "")
	dir := filepath.Dir(filepath.Dir(program))
	b := setup(t,
		turn("1", "shell_run", arguments(t, map[string]any{"command": program + " " + filepath.Join(dir, "SKILL.md")})),
		turn("2", "file_edit", arguments(t, map[string]any{"path": filepath.Join("line-counter", "SKILL.md"), "old_string": "Read", "new_string": "Obey"})),
		turn("3", "shell_run", arguments(t, map[string]any{"command": "mv line-counter elsewhere"})), done)
	s, problems := skills.Load(dir)
	if s == nil {
		t.Fatal(problems)
	}

	b.clerk(func(a *plan.Agent) {
		a.Workdir, a.Commands = work, []shell.Grant{{Argv: []string{program, "*"}}, {Argv: []string{"mv", "*"}}}
		a.Skills.View = skills.View{Preloaded: []*skills.Skill{s}}
	})
	_, calls := b.prompt("Count.")
	if len(calls) != 4 || !strings.Contains(string(calls[0].Envelope), `kept out\n`) || !strings.Contains(string(calls[1].Envelope), `"ok":false`) || strings.Contains(string(calls[2].Envelope), `"exit_code":0`) {
		for _, c := range calls {
			t.Errorf("%s", c.Envelope)
		}
	}

	if text, err := os.ReadFile(filepath.Join(dir, "SKILL.md")); err != nil || strings.Contains(string(text), "Obey") {
		t.Errorf("%s (%v)", text, err)
	}
}

// TestSkillPlaces checks that a command gets only the skills that it names, so that other skills do
// not slow it down.
func TestSkillPlaces(t *testing.T) {
	t.Parallel()
	dir, apart := folderWith(t, "x", ""), folderWith(t, "x", "")
	roots, err := tool.NewRoots(dir, []tool.Grant{{Path: filepath.Join(apart, "a"), OmitFromMessages: true}, {Path: apart}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(apart, "a"), 0o700); err != nil {
		t.Fatal(err)
	}

	for command, want := range map[string]int{"ls": 1, filepath.Join(apart, "a", "scripts", "x.sh"): 2, "cd '" + filepath.Join(apart, "a") + "' && ls": 2} {
		if read, _ := roots.ProgramPaths([]string{"sh", "-c", command}); len(read) != want {
			t.Errorf("%s reads %v", command, read)
		}
	}
}

// TestSkillAllows checks AGS-13: the commands of a loaded skill are allowed if the agent's owner
// permits it. Denied commands stay denied.
func TestSkillAllows(t *testing.T) {
	t.Parallel()
	confined(t)
	for name, c := range map[string]struct {
		allowing     bool
		deny         []string
		before, then string // parts of the results before and after the skill is loaded
	}{
		"opted in": {true, nil, `"kind":"rejected"`, `"stdout":"2\n`},
		"not":      {false, nil, `"kind":"rejected"`, `"kind":"rejected"`},
		"denied":   {true, []string{"shell_run"}, `"kind":"tool_not_found"`, `"kind":"tool_not_found"`},
	} {
		t.Run(name, func(t *testing.T) {
			root := shelf(t, "csv")
			program := scripted(t, root, "line-counter", "allowed-tools: Bash(scripts/count.sh:*) Read\n")
			run := arguments(t, map[string]any{"command": program + " book.txt"})
			b := setup(t, turn("1", "shell_run", run), turn("2", "load_skill", `{"skill_name":"line-counter"}`), turn("3", "shell_run", run),
				turn("4", "shell_run", arguments(t, map[string]any{"command": "rm book.txt"})), done)
			b.sees(root, "")
			b.clerk(func(a *plan.Agent) {
				a.Workdir, a.Skills.Allowing, a.Deny, a.OnDenied = folderWith(t, "book.txt", "a\nb\n"), c.allowing, c.deny, tool.OnDeniedContinue
				if !c.allowing {
					a.Allow = []string{"*", "shell_*"} // otherwise the shell tools are not available
				}
			})

			_, calls := b.prompt("Count the lines of the book.")
			if len(calls) != 5 {
				t.Fatalf("%v", calls)
			}

			for i, want := range map[int]string{0: c.before, 2: c.then, 3: c.before} {
				if !strings.Contains(string(calls[i].Envelope), want) {
					t.Errorf("call %d: %s\nwant %s", i+1, calls[i].Envelope, want)
				}
			}
		})
	}
}

// TestSkillCommands checks AGS-13: a pattern allows one program with its arguments, or no program.
func TestSkillCommands(t *testing.T) {
	t.Parallel()
	dir := filepath.Dir(filepath.Dir(scripted(t, t.TempDir(), "s", "")))
	program := filepath.Join(dir, "scripts", "count.sh")
	row := contract.Of(t, "AGS-13")
	for pattern, want := range map[string]string{
		row.Quote("Bash(git log:*)"): row.Quote("git log *"), "Bash(git add *)": "git add *", "Bash(make test)": "make test", "shell_run(ls)": "ls", "Bash(a:*, b)": "a *|b",
		"Bash(scripts/count.sh:*)": program + " *", "Bash(sh scripts/count.sh)": "sh " + program, "Bash(scripts/none.sh)": "scripts/none.sh",
		"Read": "", "Write(*.md)": "", "file_edit": "", "db_query": "", "web_fetch": "-", "git_status": "-",
		"Bash": "-", row.Quote("Bash(*)"): "-", "Bash(:*)": "-", "Bash()": "-", "Bash(git*)": "-", "Bash(git * push)": "-", "Bash(a; b)": "-", "Bash(a && b:*)": "-", "Bash($X:*)": "-", "Bash(a 'b c')": "-",
		"Bash(a > b)": "-", "Bash(`a`)": "-", "Bash(../x/y.sh)": "../x/y.sh", "WebFetch": "-", "mcp__x__y": "-", "Bash(ls": "-",
	} {
		grants, nothing := plan.SkillCommands(&skills.Skill{Name: "s", Dir: dir, AllowedTools: []string{pattern}}, agent.Specs())
		var got []string
		for _, g := range grants {
			if g.Network {
				t.Errorf("%s: with a network", pattern)
			}
			got = append(got, strings.Join(g.Argv, " "))
		}

		if len(nothing) > 0 {
			got = append(got, "-")
		}
		if text := strings.Join(got, "|"); text != want {
			t.Errorf("%s allows %q, want %q", pattern, text, want)
		}
	}
}

// TestToolsOnDemand checks OSA-20: tools on demand are not in the model's list. The model finds and
// loads them, and the next request lists them at the end. A tool that is called by name without
// being listed is executed, and the list does not change.
func TestToolsOnDemand(t *testing.T) {
	t.Parallel()
	b := setup(t, turn("1", "capabilities_discover", `{"query":"create a table"}`), turn("2", "capabilities_load", `{"ids":["tool/db_create_table"]}`),
		turn("3", "db_create_table", `{"name":"log","purpose":"what was done","columns":[{"name":"what","type":"text"}]}`), turn("4", "db_insert", `{"table":"log","row":{"what":"x"}}`), done, done)
	b.clerk(func(a *plan.Agent) { a.OnDemand = []string{"db_*", "complete"} })
	res, calls := b.prompt("Write it down.")
	if res.Outcome != domain.OutcomeSuccess || len(calls) != 5 {
		t.Fatalf("%+v %v", res, calls)
	}

	for i, part := range []string{`"id":"tool/db_create_table"`, `"loaded":["tool/db_create_table"]`, `"ok":true`, `"ok":true`} {
		if !strings.Contains(string(calls[i].Envelope), part) {
			t.Errorf("call %d: %q is not in %s", i+1, part, calls[i].Envelope)
		}
	}

	first := b.toolsOf(0)
	if list := strings.Join(first, " "); strings.Contains(list, "db_") || !strings.Contains(list, "complete") || !strings.Contains(list, "capabilities_load") || strings.Contains(list, "load_skill") {
		t.Errorf("%q", list)
	}
	for i, want := range [][]string{first, first, append(slices.Clone(first), "db_create_table"), append(slices.Clone(first), "db_create_table"), append(slices.Clone(first), "db_create_table")} {
		if got := b.toolsOf(i); !slices.Equal(got, want) {
			t.Errorf("request %d lists %q, want %q", i+1, got, want)
		}
	}
	if asked := string(b.server.Requests()[0]); !strings.Contains(asked, "db_alter_table, db_create_table, ") {
		t.Errorf("the names of tools to load are not in %s", asked)
	}

	// Without capabilities_load, all tools are listed.
	b.clerk(func(a *plan.Agent) { a.Deny = []string{"capabilities_load"} })
	b.prompt("Write it down.")
	if all := b.server.Requests(); !strings.Contains(string(all[len(all)-1]), `"name":"db_insert"`) {
		t.Error("db_insert can neither be found nor seen")
	}
}

// TestUnlistedToolCalled checks that an unlisted tool can be called. With wrong arguments the
// refusal contains its schema, and the tool is listed from then on.
func TestUnlistedToolCalled(t *testing.T) {
	t.Parallel()
	b := setup(t, turn("1", "dir_create", `{"path":"out"}`), turn("2", "file_copy", `{"file":"a.txt"}`), turn("3", "file_copy", `{"from":"a.txt","to":"out/"}`), done)
	b.write("work/a.txt", "x")
	res, calls := b.prompt("Copy it.")
	if res.Outcome != domain.OutcomeSuccess || len(calls) != 4 || b.text("work", "out/a.txt") != "x" {
		t.Fatalf("%+v %v", res, calls)
	}
	if refused := string(calls[1].Envelope); !strings.Contains(refused, `"kind":"invalid_args"`) || !strings.Contains(refused, `the arguments of file_copy are {\"type\":\"object\"`) {
		t.Errorf("%s", refused)
	}
	for i, want := range []bool{false, false, true, true} {
		if got := b.toolsOf(i); slices.Contains(got, "dir_create") || slices.Contains(got, "file_copy") != want {
			t.Errorf("request %d lists %q", i+1, got)
		}
	}
}

// TestLoadedToolsAfterAnInterrupt checks that a resumed attempt lists the tools that the previous
// attempt has loaded.
func TestLoadedToolsAfterAnInterrupt(t *testing.T) {
	t.Parallel()
	b := setup(t, turn("1", "capabilities_load", `{"ids":["file_copy"]}`), modeltest.Turn{Fail: model.KindAuth}, done)
	id := b.enqueue(ledger.Request{Agent: "clerk", Detail: ledger.TriggerDetail{Prompt: "Copy it."}})
	b.run(id)
	if err := b.ledger.Interrupt(t.Context(), ledger.Attempt{Run: id, Number: 1}, "killed", nil); err != nil {
		t.Fatal(err)
	}
	b.run(id)
	for i, want := range []bool{false, true, true} {
		if got := b.toolsOf(i); slices.Contains(got, "file_copy") != want {
			t.Errorf("request %d lists %q", i+1, got)
		}
	}
}

// TestListedTools checks that the list contains the tools for ordinary tasks, and the tools that
// its agent or a loaded skill names.
func TestListedTools(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*plan.Agent)
		want   string
	}{
		"any agent":  {func(*plan.Agent) {}, "capabilities_load clarify complete db_execute db_insert db_query db_schema db_upsert file_edit file_move file_read file_search file_write notify"},
		"by globs":   {func(a *plan.Agent) { a.Allow = []string{"file_*"} }, "capabilities_load file_edit file_move file_read file_search file_write"},
		"named":      {func(a *plan.Agent) { a.Allow = []string{"file_read", "db_import", "reduce"} }, "db_import file_read reduce"},
		"both":       {func(a *plan.Agent) { a.Allow = []string{"file_read", "db_*", "db_import"} }, "capabilities_load db_execute db_import db_insert db_query db_schema db_upsert file_read"},
		"no loader":  {func(a *plan.Agent) { a.Allow, a.Deny = []string{"file_*"}, []string{"capabilities_load"} }, "file_copy file_delete file_edit file_move file_operation_history file_read file_search file_undo file_write"},
		"all listed": {func(a *plan.Agent) { a.Allow, a.OnDemand = []string{"db_*view*"}, []string{} }, "db_define_view db_drop_view db_list_views db_run_view"},
	} {
		t.Run(name, func(t *testing.T) {
			b := setup(t, done)
			b.clerk(c.change)
			b.prompt("Do it.")
			if got := strings.Join(b.toolsOf(0), " "); got != c.want {
				t.Errorf("%s\nwant %s", got, c.want)
			}
		})
	}

	b := setup(t, turn("1", "load_skill", `{"skill_name":"counter"}`), done)
	root := folderWith(t, "x", "")
	scripted(t, root, "counter", "allowed-tools: db_import Read file_copy\n")
	b.sees(root, "")
	b.prompt("Count.")
	if before, after := b.toolsOf(0), b.toolsOf(1); slices.Contains(before, "db_import") || !slices.Equal(after[len(after)-2:], []string{"db_import", "file_copy"}) {
		t.Errorf("%q, then %q", before, after)
	}
}

// TestFirstRequestBytes checks that the first request of an ordinary job has at most 9,000 bytes,
// and that of a job with only file tools 4,000.
func TestFirstRequestBytes(t *testing.T) {
	t.Parallel()
	for most, allow := range map[int][]string{9000: nil, 4000: {"file_*"}} {
		b := setup(t, done)
		b.clerk(func(a *plan.Agent) { a.Allow = allow })
		b.plan.Jobs["note"] = plan.Job{Name: "note", Agent: "clerk", Prompt: "Write the date to today.md."}
		b.run(b.enqueue(ledger.Request{Job: "note", Agent: "clerk"}))
		if first := b.server.Requests()[0]; len(first) > most {
			t.Errorf("%d bytes, at most %d are allowed:\n%s", len(first), most, first)
		}
	}
}

// TestToolsOfANarrowContext checks that a model with a small context gets short tool descriptions.
// on_demand overrides the size of the window.
func TestToolsOfANarrowContext(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		window   int
		onDemand []string
		told     bool // rarely used tools are listed
	}{
		"narrow":                      {8192, nil, false},
		"narrow, and told of all":     {16_383, []string{}, true},
		"wide enough":                 {16_384, nil, false},
		"wide, and told of all":       {16_384, []string{}, true},
		"of which nobody says a size": {0, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := setup(t, done)
			b.clerk(func(a *plan.Agent) {
				m := *a.Model
				m.Window = c.window
				a.Model, a.OnDemand = &m, c.onDemand
			})
			if res, _ := b.prompt("Write it down."); res.Outcome != domain.OutcomeSuccess {
				t.Fatalf("%+v", res)
			}

			asked := string(b.server.Requests()[0])
			if got := strings.Contains(asked, `"name":"db_migrate"`); got != c.told {
				t.Errorf("told of db_migrate: %v", got)
			}
			if !strings.Contains(asked, `"name":"db_query"`) || strings.Contains(asked, `"name":"capabilities_load"`) == c.told {
				t.Errorf("%s", asked)
			}
		})
	}
}

// TestSkillCommandsAreOfTheDefinition checks AGS-13 and OSL-19: commands that skills allow are part
// of a definition that another user could have written. If a skill allows more commands, the owner
// is asked again.
func TestSkillCommandsAreOfTheDefinition(t *testing.T) {
	t.Parallel()
	b := setup(t, done)
	root := folderWith(t, "x", "")
	asked := func(tools string) (title, shown string) {
		t.Helper()
		scripted(t, root, "counter", "allowed-tools: "+tools+"\n")
		b.sees(root, "")
		b.clerk(func(a *plan.Agent) { a.Foreign, a.Skills.Allowing = "rouse.yaml may be written by others", true })
		res, _ := b.prompt("Count.")
		if res.Wait == nil {
			return "", ""
		}
		return res.Wait.Title, res.Wait.Action.Description
	}
	if title, _ := asked("Read"); title != "" {
		t.Errorf("without a command it asks: %s", title)
	}

	_, first := asked("Bash(git log:*)")
	_, second := asked("Bash(git log:*) Bash(rm:*)")
	if first == second || !strings.Contains(first, `counter: [\"git\" \"log\" \"*\"]`) || !strings.Contains(second, `rm`) {
		t.Errorf("%s\n%s", first, second)
	}
}

// TestChangedSkillAllowsNothing checks AGS-13: a skill that differs from the installed version
// allows no commands, even if it was loaded before.
func TestChangedSkillAllowsNothing(t *testing.T) {
	t.Parallel()
	confined(t)
	from, home := folderWith(t, "x", ""), folderWith(t, "x", "")
	scripted(t, from, "counter", "allowed-tools: Bash(scripts/count.sh:*)\n")
	staged, err := install.Fetch(t.Context(), home, install.Source{From: filepath.Join(from, "counter")})
	if err == nil {
		_, err = install.Install(t.Context(), home, staged, false)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := staged.Close(); err != nil {
		t.Fatal(err)
	}

	program := filepath.Join(home, "counter", "scripts", "count.sh")
	run := arguments(t, map[string]any{"command": program + " book.txt"})
	b := setup(t, turn("1", "load_skill", `{"skill_name":"counter"}`), turn("2", "shell_run", run), modeltest.Turn{Fail: model.KindAuth}, turn("3", "shell_run", run), done)
	b.sees(home, "")
	b.clerk(func(a *plan.Agent) {
		a.Workdir, a.Skills.Allowing, a.OnDenied = folderWith(t, "book.txt", "a\n"), true, tool.OnDeniedContinue
	})
	id := b.enqueue(ledger.Request{Agent: "clerk", Detail: ledger.TriggerDetail{Prompt: "Count."}})
	b.run(id)
	if err := b.ledger.Interrupt(t.Context(), ledger.Attempt{Run: id, Number: 1}, "killed", nil); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(program, []byte("#!/bin/sh\necho other\n"), 0o700); err != nil {
		t.Fatal(err)
	}

	b.run(id)
	calls, err := b.ledger.Steps.Calls(t.Context(), id)
	if err != nil || len(calls) != 4 || !strings.Contains(string(calls[1].Envelope), `"ok":true`) || !strings.Contains(string(calls[2].Envelope), `"kind":"rejected"`) {
		t.Errorf("%v", err)
		for _, c := range calls {
			t.Errorf("%s", c.Envelope)
		}
	}
}
