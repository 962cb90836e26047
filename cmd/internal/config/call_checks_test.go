package config_test

import (
	"fmt"
	"strings"
	"testing"
)

// What a call is judged by is checked with its file and line: what its tool reports, what is said twice, and
// names that no run has.
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
			_, err := load(write(t, "rouse.yaml", fmt.Sprintf("agents: [{name: a, workdir: ./w, tools: {allow: ['*', bash, git_commit]}, grants: {commands: [{argv: [ls]}], network: [{host: example.com}]}}]\njobs:\n  - name: j\n    agent: a\n    playbook: [%s]\n", c.call)), nil)
			switch {
			case c.say == "" && err != nil:
				t.Error(err)
			case c.say != "" && (err == nil || !strings.Contains(err.Error(), c.say)):
				t.Errorf("%v\nwant %s", err, c.say)
			}
		})
	}
}

// Each call of a playbook is a step: what its job or its agent says about steps holds, what they do not say does
// not, and a list that is certain to be cut off is warned of.
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
			cfg, err := load(write(t, "rouse.yaml", fmt.Sprintf("agents: [{name: a, %s}]\njobs:\n  - {name: j, agent: a, %swatch: {path: ./in, mode: batch}, playbook: [%s]}\n", c.agent, c.job, c.calls), "in/.keep", ""), nil)
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
