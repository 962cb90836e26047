package check_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rouse/cmd/internal/config"
	"rouse/cmd/internal/config/configtest"
)

// describe returns all problems of a configuration with one agent and one playbook, warnings last.
func describe(t *testing.T, agent, job, calls string) string {
	t.Helper()
	path := configtest.Write(t, "rouse.yaml", fmt.Sprintf("version: 1\nhome: ./state\nagents:\n  - {name: clerk, workdir: ./work%s}\njobs:\n  - {name: j, agent: clerk%s, playbook: [%s]}\n", agent, job, calls), "in/.keep", "", "work/.keep", "")
	cfg, err := configtest.Load(path, nil)
	var out []string
	var all *config.Errors
	switch {
	case errors.As(err, &all):
		for _, p := range all.Problems {
			out = append(out, p.String())
		}
	case err != nil:
		t.Fatal(err)
	}

	for _, w := range cfg.Warnings {
		out = append(out, w.String())
	}
	return strings.ReplaceAll(strings.Join(out, "\n"), filepath.Dir(path)+string(filepath.Separator), "")
}

// TestArgumentsOfCalls checks the arguments of calls against the tools, as far as the values are
// known before a run.
func TestArgumentsOfCalls(t *testing.T) {
	for _, c := range []struct{ call, want string }{
		{"{call: file_write, with: {path: a.md, content: x}}", ""},
		{"{call: file_write, with: {pth: a.md, content: x}}", `rouse.yaml:6:71: j: jobs[0].playbook[0].with.pth: there is no argument "pth"; did you mean "path"?`},
		{"{call: notify, with: {titel: x}}", `with.titel: there is no argument "titel"; did you mean "title"?`},
		{"{call: notify, with: {body: x}}", `with.title: the argument "title" is missing; expected a string`},
		{"{call: notify}", `the argument "title" is missing`},
		{"{call: notify, with: {title: 7}}", `the argument "title" must be a string, not 7`},
		{"{call: notify, with: {title: x, channel: pager}}", `with.channel: there is no channel "pager"; there are desktop`},
		{"{call: notify, with: {title: '{{ .Job }}', channel: '{{ .Job }}'}}", ""},
		{"{call: file_write, with: {path: a, content: b, mode: apend}}", `the argument "mode" must be one of overwrite, append, not "apend"`},
		{"{call: file_write, with: {path: a, content: b, mode: '{{ .Input.mode }}', dry_run: '= Attempt > 1'}}", ""},
		{"{call: file_read, with: {path: a, max_chars: many}}", `the argument "max_chars" must be a whole number, not "many"`},
		{"{call: file_read, with: {path: a, max_chars: '12'}}", ""}, // accepted like in a call
		{"{call: db_create_table, with: {name: t, purpose: p, columns: [{name: a, typ: TEXT}]}}", `with.columns[0].typ: there is no argument "typ"; did you mean "type"?`},
		{"{call: db_insert, with: {table: t, rows: '= Input.rows'}}", ""},
		{"{call: db_insert, with: {table: t, row: {any: 1, thing: [x]}}}", ""},
		{"{call: read_file, with: {path: a}}", "read_file is another name of file_read, which only an agent has whose tools.allow names it; call file_read"},
		{"{call: reduce, with: {task: x}}", "reduce is for models, and a playbook has none; use a prompt"},
	} {
		if got := describe(t, "", "", c.call); (c.want == "") != (got == "") || !strings.Contains(got, c.want) || strings.Count(got, "\n") > 0 {
			t.Errorf("%s:\n%s\nwant\n%s", c.call, got, c.want)
		}
	}
}

// TestKnownValues checks names in templates and expressions in loops, variables and list items.
// Results of calls are not checked.
func TestKnownValues(t *testing.T) {
	const file, batch, converge = ", watch: {path: ./in}", ", watch: {path: ./in, mode: batch}", ", watch: {path: ./in, mode: converge}"
	write := func(text string) string {
		return fmt.Sprintf("{call: file_write, with: {path: a, content: %q}}", text)
	}
	each := func(list, text string) string {
		return fmt.Sprintf("{call: file_write, each: %q, with: {path: a, content: %q}}", list, text)
	}

	for _, c := range []struct{ job, call, want string }{
		{file, write("{{ .File.Nmae }}"), `with.content: there is no field of .File "Nmae"; did you mean "Name"?`},
		{file, write("{{ .Fiel }}"), `with.content: there is no value "Fiel"; did you mean "File"?`},
		{file, write("{{ with .File }}{{ .Pth }}{{ end }}"), `there is no field of .File "Pth"; did you mean "Path"?`},
		{file, write("{{ $f := .File }}{{ if true }}{{ $f.Pth }}{{ end }}"), `there is no field of .File "Pth"`},
		{file, write("{{ .File.Path.Dir }}"), `.File.Path has no parts, so that "Dir" cannot be taken of it`},
		{file, write("{{ .File.ModTime.Year }} {{ .Scheduled.Format \"2006\" }} {{ .Input.any.thing }}"), ""},
		{file, write("{{ uper .File.Name }}"), `with.content: the template of content is broken: content:1: function "uper" not defined`},
		{file, write("{{ printff .File.Name }}"), `did you mean "printf"?`},
		{file, write("= File.Nmae"), `there is no field of .File "Nmae"; did you mean "Name"?`},
		{file, write("= uper(File.Name)"), `the expression of content is broken: unknown name uper (1:1); did you mean "upper"?`},
		{file, write("= Attempt == 'two'"), "mismatched types int and string"},
		{batch, write("{{ range .Files }}{{ .Path }}{{ end }}{{ range $i, $f := .Files }}{{ $i }}{{ $f.Size }}{{ end }}{{ (index .Files 0).Name }}"), ""},
		{batch, write("{{ range .Files }}{{ .Pth }}{{ end }}"), `there is no field of each of .Files "Pth"; did you mean "Path"?`},
		{batch, write("{{ range $i, $f := .Files }}{{ $f.Sise }}{{ end }}"), `"Sise"; did you mean "Size"?`},
		{batch, write("{{ (index .Files 0).Nam }}"), `"Nam"; did you mean "Name"?`},
		{batch, write("= map(Files, .Pth)"), `there is no field "Pth"; did you mean "Path"?`},
		{batch, each("= filter(Files, .Size > 1)", "{{ .item.Path }} {{ .index }}"), ""},
		{batch, each("= filter(Files, .Size > 1)", "{{ .item.Paht }}"), `there is no field of .item "Paht"; did you mean "Path"?`},
		{converge, each("= Changes.Added", "{{ .item }}"), ""},
		{converge, each("= Changes.Added", "{{ .item.Path }}"), `.item has no parts, so that "Path" cannot be taken of it`},
		{converge, each("= Round", "x"), "each: gives a int, which is not a list"},
		{converge, "{call: db_schema, if: Round}", "if: gives a int, which is neither true nor false"},
		{file, "{call: db_schema, save: tables}, " + write("{{ .tabels }}"), `there is no value "tabels"; did you mean "tables"?`},
		{file, "{call: db_schema, save: tables}, " + write("= tabels.x"), `there is no value "tabels"; did you mean "tables"?`},
		{file, "{call: db_schema, save: Files}, " + write("{{ .Files.any }}"), ""},
		{file, "{call: db_schema, save: x}, " + write("{{ $v := .File }}{{ $v = .x }}{{ $v.any }}"), ""},
	} {
		if got := describe(t, "", c.job, c.call); (c.want == "") != (got == "") || !strings.Contains(got, c.want) || strings.Count(got, "\n") > 0 {
			t.Errorf("%s %s:\n%s\nwant\n%s", c.job, c.call, got, c.want)
		}
	}
}

// TestCallsWithoutGrant checks that a call that would always be refused is an error, and that a
// call that would wait for an approval is a warning.
func TestCallsWithoutGrant(t *testing.T) {
	const runs = ", grants: {commands: [{argv: [pandoc, '*.md']}]}"
	const asks = ", grants: {network: [{host: example.com}, {host: 192.0.2.7, methods: [POST]}]}, private: {workdir: false, database: false}"
	outside := filepath.ToSlash(filepath.Join(os.TempDir(), "elsewhere"))
	for _, c := range []struct{ agent, job, call, want string }{
		{"", "", "{call: shell_run, with: {command: pandoc a.md}}", `the agent "clerk" may run no program, so it has no shell_run; name what it may run under grants: commands`},
		{runs, "", "{call: shell_run, with: {command: pandoc a.md}}", ""},
		{runs, "", "{call: shell_run, with: {command: pandoc a.txt}}", "with.command: warning: none of the agent's grants for commands covers it, so that each run waits for your approval; grant it under"},
		{runs + ", on_denied: fail", "", "{call: shell_run, with: {command: git push}}", "so that the call is refused (on_denied: fail)"},
		{runs, "", "{call: shell_run, with: {command: 'pandoc a.md | wc'}}", "warning: grants are for one program with its arguments, and this has a pipe"},
		{runs, "", "{call: shell_run, with: {command: 'rm -rf /'}}", "with.command: the call would be refused: the command is refused: it"},
		{runs, "", "{call: shell_run, with: {command: 'pandoc {{ .Job }}.md'}}", ""},
		{runs, "", "{call: shell_run, with: {command: 'git add {{ .Job }}.md'}}", "warning: none of the agent's grants for commands covers it"},
		{runs, "", "{call: shell_run, with: {command: '= Input.command'}}", ""},
		{"", "", "{call: web_fetch, with: {url: 'https://example.com/'}}", `the agent "clerk" may ask no host, so it has no web_fetch`},
		{asks, "", "{call: web_fetch, with: {url: 'https://example.com/{{ .Job }}'}}", ""},
		{asks, "", "{call: web_fetch, with: {url: 'https://example.com/', method: POST}}", "with.url: warning: POST example.com is not among the grants of this agent (grants.network), so that each run waits"},
		{asks, "", "{call: web_fetch, with: {url: 'https://example.org/{{ .Job }}'}}", "warning: GET example.org is not among the grants"},
		{asks, "", "{call: web_fetch, with: {url: 'https://{{ .Job }}.example.org/'}}", ""},
		{asks, "", "{call: web_fetch, with: {url: 'http://127.0.0.1/'}}", "with.url: the call would be refused: 127.0.0.1 is an address of this machine"},
		{"", "", "{call: file_write, with: {path: " + outside + "/a, content: x}}", "is outside of what the agent may write: work; grant its folder under grants: write"},
		{"", "", "{call: file_read, with: {path: ../in/a}}", "with.path: in/a is outside of what the agent may read: work; grant its folder under grants: read"},
		{"", ", watch: {path: ./in}", "{call: file_read, with: {path: ../in/a}}", ""},
		{", grants: {read: [{path: ./in, private: false}]}", "", "{call: file_read, with: {path: ../in/a}}", ""},
		{", grants: {write: [./in]}", "", "{call: file_write, with: {path: a, content: x}}", "work/a is outside of what the agent may write: in"},
		{", grants: {write: [./in]}", "", "{call: db_export, with: {path: a.csv, sql: select 1}}", "work/a.csv is outside of what the agent may write: in"},
		{", grants: {write: [./in]}", "", "{call: db_import, with: {path: a.csv, table: t}}", ""},
		{"", "", "{call: git_status}", "call: warning: work is no git repository, so that the agent has no git_status"},
	} {
		got := describe(t, c.agent, c.job, c.call)
		if (c.want == "") != (got == "") || !strings.Contains(got, c.want) || strings.Count(got, "\n") > 0 {
			t.Errorf("%s %s:\n%s\nwant\n%s", c.agent, c.call, got, c.want)
		}
	}
}

// TestCallChecks checks mistakes in must_succeed and expect: results that the tool does not have,
// duplicate settings, and unknown names.
func TestCallChecks(t *testing.T) {
	for name, c := range map[string]struct{ call, say string }{
		"exit":               {"{call: shell_run, with: {command: ls}, expect: {exit: 0}}", ""},
		"exits":              {"{call: shell_run, with: {command: ls}, expect: {exit: [0, 1], that: 'result.lines > 0 && Job != \"\"'}}", ""},
		"status":             {"{call: web_fetch, each: [1], with: {url: 'https://example.com/'}, expect: {status: [200, 204], that: 'item == index'}}", ""},
		"must not":           {"{call: web_fetch, with: {url: 'https://example.com/'}, must_succeed: false}", ""},
		"must be committed":  {"{call: git_commit, with: {message: x}, must_succeed: true}", ""},
		"that of any":        {"{call: db_query, with: {sql: select 1}, expect: {that: len(result.rows) == 1}}", ""},
		"nothing":            {"{call: shell_run, with: {command: ls}, expect: {}}", "rouse.yaml:5:63: j: jobs[0].playbook[0].expect: says nothing; give exit, status or that"},
		"empty":              {"{call: shell_run, with: {command: ls}, expect: {exit: []}}", "jobs[0].playbook[0].expect: says nothing"},
		"exit of a query":    {"{call: db_query, with: {sql: select 1}, expect: {exit: 0}}", "rouse.yaml:5:71: j: jobs[0].playbook[0].expect.exit: db_query has no exit code; exit goes with shell_run"},
		"exit of bash":       {"{call: bash, with: {command: ls}, expect: {exit: 0}}", "expect.exit: bash has no exit code"},
		"status of a shell":  {"{call: shell_run, with: {command: ls}, expect: {status: 200}}", "expect.status: shell_run has no status; status goes with web_fetch"},
		"no code":            {"{call: shell_run, with: {command: ls}, expect: {exit: [zero]}}", `expect.exit[0]: must be a whole number from 0 on, not "zero"`},
		"no such code":       {"{call: shell_run, with: {command: ls}, expect: {exit: 300}}", "expect.exit 300 is no exit code: 0 to 255"},
		"a slip in a key":    {"{call: shell_run, with: {command: ls}, expect: {exti: 0}}", `unknown key "exti"; did you mean "exit"?`},
		"a slip in a name":   {"{call: shell_run, with: {command: ls}, expect: {that: reslt.lines > 0}}", `expect.that: there is no value "reslt"; did you mean "result"?`},
		"result elsewhere":   {"{call: shell_run, with: {command: ls}, if: result.lines > 0}", `if: there is no value "result"`},
		"no expression":      {"{call: shell_run, with: {command: ls}, expect: {that: '1 +'}}", "expect.that: the expression of that is broken"},
		"said twice":         {"{call: shell_run, with: {command: ls, must_succeed: true}, must_succeed: false}", "must_succeed stands in the call and in with: say it once"},
		"against each other": {"{call: shell_run, with: {command: ls}, must_succeed: true, expect: {exit: 1}}", "expect says already which ends are a success: leave must_succeed out"},
		"of a query":         {"{call: db_query, with: {sql: select 1}, must_succeed: false}", "jobs[0].playbook[0].must_succeed: whatever db_query cannot do is a failed call already; leave it out; on_error: continue passes over a failure"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := configtest.Load(configtest.Write(t, "rouse.yaml", fmt.Sprintf("agents: [{name: a, workdir: ./w, tools: {allow: ['*', bash, git_commit]}, grants: {commands: [{argv: [ls]}], network: [{host: example.com}]}}]\njobs:\n  - name: j\n    agent: a\n    playbook: [%s]\n", c.call)), nil)
			switch {
			case c.say == "" && err != nil:
				t.Error(err)
			case c.say != "" && (err == nil || !strings.Contains(err.Error(), c.say)):
				t.Errorf("%v\nwant %s", err, c.say)
			}
		})
	}
}

// TestPlaybookSteps checks that steps are limited by the job's or agent's bounds, not by the
// default, and that a list with too many calls causes a warning.
func TestPlaybookSteps(t *testing.T) {
	const (
		once = "{call: todo, with: {markdown: x}}"
		each = "{call: file_read, each: '= Files', with: {path: '{{ .item.Path }}'}}"
	)
	for name, c := range map[string]struct {
		agent, job, calls string
		steps, files      int
		warned            string
	}{
		"none":             {"", "", once, 100, 500, ""},
		"as many as calls": {"bounds: {calls: 7}", "", once, 7, 500, ""},
		"the job's":        {"", "bounds: {steps: 2}, ", once + ", " + once, 2, 500, ""},
		"too few":          {"", "bounds: {steps: 2}, ", once + ", " + once + ", " + once, 2, 500, "jobs[0].bounds.steps: warning: the playbook makes 3 calls at least, and each run ends after 2: raise bounds.steps"},
		"skipped, perhaps": {"", "bounds: {steps: 1}, ", once + ", {call: todo, if: More > 0, with: {markdown: x}}", 1, 500, ""},
		"the agent's":      {"bounds: {steps: 5}", "", each, 5, 5, ""},
		"too few calls":    {"bounds: {calls: 1, steps: 5}", "", once + ", " + once, 5, 500, "jobs[0].bounds.calls: warning: the playbook makes 2 calls at least"},
		"of a batch":       {"", "bounds: {steps: 4}, ", each + ", " + each, 4, 2, ""},
	} {
		t.Run(name, func(t *testing.T) {
			cfg, err := configtest.Load(configtest.Write(t, "rouse.yaml", fmt.Sprintf("agents: [{name: a, %s}]\njobs:\n  - {name: j, agent: a, %swatch: {path: ./in, mode: batch}, playbook: [%s]}\n", c.agent, c.job, c.calls), "in/.keep", ""), nil)
			if err != nil {
				t.Fatal(err)
			}

			warned := ""
			for _, w := range cfg.Warnings {
				warned += w.String()
			}
			if j := cfg.Jobs[0]; j.Bounds.Steps != c.steps || j.Watch.MaxFiles != c.files || !strings.Contains(warned, c.warned) || (c.warned == "") != (warned == "") {
				t.Errorf("%d steps, %d files, %q", j.Bounds.Steps, j.Watch.MaxFiles, warned)
			}
		})
	}
}
