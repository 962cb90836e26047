package config_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rouse/cmd/internal/config"
)

// said is all that a configuration with one playbook of one agent is told, its warnings last.
func said(t *testing.T, agent, job, calls string) string {
	t.Helper()
	path := write(t, "rouse.yaml", fmt.Sprintf("version: 1\nhome: ./state\nagents:\n  - {name: clerk, workdir: ./work%s}\njobs:\n  - {name: j, agent: clerk%s, playbook: [%s]}\n", agent, job, calls), "in/.keep", "", "work/.keep", "")
	cfg, err := load(path, nil)
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

// The arguments of every call are those of its tool, as far as their values are known: a slip is told with
// its place before any run makes it.
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
		{"{call: file_read, with: {path: a, max_chars: '12'}}", ""}, // as a call takes it
		{"{call: db_create_table, with: {name: t, purpose: p, columns: [{name: a, typ: TEXT}]}}", `with.columns[0].typ: there is no argument "typ"; did you mean "type"?`},
		{"{call: db_insert, with: {table: t, rows: '= Input.rows'}}", ""},
		{"{call: db_insert, with: {table: t, row: {any: 1, thing: [x]}}}", ""},
		{"{call: read_file, with: {path: a}}", "read_file is another name of file_read, which only an agent has whose tools.allow names it; call file_read"},
		{"{call: reduce, with: {task: x}}", "reduce is for models, and a playbook has none; use a prompt"},
	} {
		if got := said(t, "", "", c.call); (c.want == "") != (got == "") || !strings.Contains(got, c.want) || strings.Count(got, "\n") > 0 {
			t.Errorf("%s:\n%s\nwant\n%s", c.call, got, c.want)
		}
	}
}

// Names in templates and expressions are followed as far as their types are known: into loops, variables and
// the items of lists, and not into what a call has saved.
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
		if got := said(t, "", c.job, c.call); (c.want == "") != (got == "") || !strings.Contains(got, c.want) || strings.Count(got, "\n") > 0 {
			t.Errorf("%s %s:\n%s\nwant\n%s", c.job, c.call, got, c.want)
		}
	}
}

// A call that no grant covers is told when the configuration is read: what is refused whatever anybody says
// is an error, what would wait for an approval in each run a warning.
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
		got := said(t, c.agent, c.job, c.call)
		if (c.want == "") != (got == "") || !strings.Contains(got, c.want) || strings.Count(got, "\n") > 0 {
			t.Errorf("%s %s:\n%s\nwant\n%s", c.agent, c.call, got, c.want)
		}
	}
}
