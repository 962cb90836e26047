package check_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"rouse/cmd/internal/config"
	"rouse/cmd/internal/config/configtest"
	"rouse/internal/contract"
)

const moduleManifest = `{
  "name": "sums", "description": "Does sums.", "version": "1.0.0", "author": "nobody", "schemaVersion": "2.0",
  "capabilities": [], "compatibilityRequirements": [%[1]s], "permissions": [%[2]s], "requiredBindings": [%[3]s],
  "inputSchema": {"type": "object", "properties": {"to": {"type": "number"}}}, "outputSchema": {"type": "object"},
  "supportedPlatforms": [%[4]q], "bridgeRequirement": %[5]q, "workspaceSupport": %[6]q, "workspaceSchemaVersion": "1.0.0",
  "longRunningSupport": %[7]q, "userInputSupport": false, "artifactVersioningSupport": false, "executionMode": %[8]q,
  "agenticConfig": {"enabled": %[9]t, "requiresWorkspace": false, "supportsBackgroundExecution": false, "supportsRoleBasedExecution": false, "maxStepsPerRun": 5, "defaultStepBudget": 5}
}`

// platformHere returns the platform of this machine as manifests name it.
func platformHere() string {
	if runtime.GOOS == "darwin" {
		return "macos"
	}
	return runtime.GOOS
}

// TestModuleJobs checks that a job is refused if its skill cannot run here or if its agent lacks
// required grants. If the skill can run without them, the job causes a warning.
func TestModuleJobs(t *testing.T) {
	t.Parallel()
	here, elsewhere := platformHere(), "windows"
	if here == elsewhere {
		elsewhere = "linux"
	}

	settings, background := contract.Of(t, "OSL-11"), contract.Of(t, "OSL-16")
	schema, key := settings.Quote("config-schema.json"), settings.Quote("skills.settings")
	// unattended is the problem of a skill that does not support background execution, for a
	// trigger of the job.
	unattended := func(trigger string) string {
		return "jobs[0]." + background.Quote(trigger) + ": the skill sums says that it must not run unattended"
	}
	if field := background.Quote("agenticConfig"); !strings.Contains(moduleManifest, `"`+field+`": {`) || !strings.Contains(moduleManifest, `"`+background.Quote("supportsBackgroundExecution")+`": false`) {
		t.Fatal("the manifest of this test supports background execution")
	}

	type manifest struct {
		features, permissions, bindings, platform, bridge, workspace, long, mode string
		agentic                                                                  bool
	}
	for name, c := range map[string]struct {
		change  func(*manifest)
		grants  string
		more    string // keys of skills
		job     string // keys of the job
		says    string // expected message; "" if there is no problem
		warning bool
	}{
		"runs":                {},
		"elsewhere":           {change: func(m *manifest) { m.platform = elsewhere }, says: "the skill sums is not for " + runtime.GOOS},
		"flow":                {change: func(m *manifest) { m.mode = "flow" }},
		"needs a workspace":   {change: func(m *manifest) { m.workspace = "required" }, says: "the skill sums works in a workspace, and the job names none; name one: workspace: j"},
		"has a workspace":     {change: func(m *manifest) { m.workspace = "required" }, job: `, workspace: "sums of {{ .Job }}"`},
		"wrong workspace":     {change: func(m *manifest) { m.workspace = "required" }, job: `, workspace: "{{ .Jop }}"`, says: "Jop"},
		"takes a workspace":   {change: func(m *manifest) { m.workspace = "optional" }},
		"has none":            {job: `, workspace: x`, says: "the skill sums keeps no workspaces"},
		"runs long":           {change: func(m *manifest) { m.long = "required" }, says: "for which it needs a workspace, and the job names none"},
		"manually":            {change: func(m *manifest) { m.mode, m.agentic = "agentic", true }},
		"unattended":          {change: func(m *manifest) { m.mode, m.agentic = "agentic", true }, job: `, schedule: "@daily"`, says: unattended("schedule")},
		"by a watch":          {change: func(m *manifest) { m.mode, m.agentic = "agentic", true }, job: `, watch: {folder: ./in}`, says: unattended("watch")},
		"by a webhook":        {change: func(m *manifest) { m.mode, m.agentic = "agentic", true }, job: `, webhook: {path: j}`, says: unattended("webhook")},
		"after another":       {change: func(m *manifest) { m.mode, m.agentic = "agentic", true }, job: `, after: [j]`, says: unattended("after")},
		"unattended for once": {change: func(m *manifest) { m.mode, m.agentic = "agentic", true }, job: `, schedule: "@daily"`, more: `, settings: [{name: sums, config: {digits: 3}, ` + background.Quote("background: true") + `}]`},
		"feature":             {change: func(m *manifest) { m.features = `"indexeddb"` }, says: "indexeddb"},
		"needs programs":      {change: func(m *manifest) { m.bridge, m.features = "required", `"system_tools"` }, says: "needs programs, and the agent may run none"},
		"has programs":        {change: func(m *manifest) { m.bridge, m.features = "required", `"system_tools"` }, grants: "commands: [{argv: [git, status]}]"},
		"takes programs":      {change: func(m *manifest) { m.bridge = "optional" }, says: "asks for programs", warning: true},
		"network":             {change: func(m *manifest) { m.permissions = `{"kind": "network", "scope": "x", "description": "x"}` }, says: "asks for the network", warning: true},
		"has network":         {change: func(m *manifest) { m.permissions = `{"kind": "network", "scope": "x", "description": "x"}` }, grants: "network: [{host: example.com}]"},
		"needs a secret":      {change: func(m *manifest) { m.bindings = `{"name": "key", "scope": "x", "description": "x", "required": true}` }, says: "needs the secret key"},
		"settings":            {more: `, settings: [{name: sums, config: {digits: 3}, tools: ["db_*", notify]}]`},
		"wrong settings":      {more: `, settings: [{name: sums, config: {digits: many}}]`, says: key + "[0].config: does not fit the " + schema + " of the skill sums: digits:"},
		"no such skill":       {more: `, settings: [{name: sum}]`, says: `there is no skill with a module "sum"; did you mean "sums"?`},
		"no such tool":        {more: `, settings: [{name: sums, tools: [notfy]}]`, says: `there is no tool "notfy"; did you mean "notify"?`},
		"set twice":           {more: `, settings: [{name: sums}, {name: sums}]`, says: "skills.settings[1].name: the skill sums has settings above"},
		"has a secret":        {change: func(m *manifest) { m.bindings = `{"name": "key", "scope": "x", "description": "x", "required": true}` }, grants: "secrets: [{name: key, only_to: example.com}]"},
		"other WebAssembly": {change: func(m *manifest) {
			m.permissions = `], "wasm": [{"moduleId": "m", "sourceKind": "inline_base64", "sourceUrl": "AGFzbQEAAAA=", "sourceLanguage": "rust", "exports": [], "memoryLimitMB": 1, "auditHash": "` + strings.Repeat("0", 64) + `"}], "tools": [`
		}, says: "it is not the one that was audited"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := manifest{platform: here, bridge: "never", workspace: "none", long: "none", mode: "declarative"}
			if c.change != nil {
				c.change(&m)
			}

			dir := t.TempDir()
			for file, text := range map[string]string{
				"rouse.yaml": fmt.Sprintf(`version: 1
home: ./state
skills: {roots: [{path: ./skills}]%s}
agents: [{name: clerk, workdir: ./work, grants: {%s}}]
jobs: [{name: j, agent: clerk, skill: sums, input: {to: 3}%s}]
`, c.more, c.grants, c.job),
				"skills/sums/" + schema:     `{"type": "object", "properties": {"unit": {"type": "string", "default": "m"}, "digits": {"type": "number"}}}`,
				"skills/sums/module.ts":     "export async function execute() { return {} }",
				"skills/sums/manifest.json": fmt.Sprintf(moduleManifest, m.features, m.permissions, m.bindings, m.platform, m.bridge, m.workspace, m.long, m.mode, m.agentic),
			} {
				path := filepath.Join(dir, filepath.FromSlash(file))
				if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
					t.Fatal(err)
				}
			}

			cfg, err := configtest.Load(filepath.Join(dir, "rouse.yaml"), map[string]string{"HOME": dir, "secret:key": "sk-0123"})
			var said []string
			var wrong *config.Errors
			if errors.As(err, &wrong) {
				for _, p := range wrong.Problems {
					said = append(said, p.String())
				}
			} else if err != nil {
				t.Fatal(err)
			}
			for _, p := range cfg.Warnings {
				if c.warning {
					said = append(said, p.String())
				}
			}

			if c.more != "" && c.says == "" {
				if config := string(cfg.ModuleSettings()["sums"].Config); config != `{"digits":3,"unit":"m"}` {
					t.Errorf("host.config is %s", config)
				}
			}
			if all := strings.Join(said, "\n"); c.says == "" && len(said) > 0 || !strings.Contains(all, c.says) || c.warning == (wrong != nil) && c.says != "" {
				t.Errorf("said %q, want %q", all, c.says)
			}
		})
	}
}

// TestOffers checks tool lists and playbooks that name tools offered by skills. Unknown tools are
// reported, and arguments must fit the schemas.
func TestOffers(t *testing.T) {
	t.Parallel()
	const tell = `"tools": [{"name": "tell", "description": "Tells.", "inputSchema": {"properties": {"what": {"type": "string", "maxLength": 3}}, "required": ["what"]}, "outputSchema": {}, "handlerExport": "tell"}], "version"`
	for name, c := range map[string]struct {
		agent   string // additional keys of the agent
		job     string // calls of the job
		change  [2]string
		says    string // expected message; "" if there is no problem
		warning bool
	}{
		"deny all":           {agent: `skills: [sums], tools: {deny: ["sums__*"]}`},
		"deny one":           {agent: `tools: {deny: [sums__tell]}`},
		"may be registered":  {agent: `tools: {deny: [sums__other]}`},
		"no such skill":      {agent: `tools: {deny: ["smus__*"]}`, says: `there is no tool "smus__*"`},
		"call":               {agent: `skills: [sums]`, job: `{call: sums__execute, with: {to: 3}}, {call: sums__tell, with: {what: abc}}`},
		"later":              {agent: `skills: [sums]`, job: `{call: sums__execute, with: {to: "= 1 + 2"}}`},
		"found":              {job: `{call: sums__execute, with: {to: 3}}`},
		"wrong type":         {agent: `skills: [sums]`, job: `{call: sums__execute, with: {to: many}}`, says: `playbook[0].with.to: the argument "to" must be a number`},
		"lacks one":          {agent: `skills: [sums]`, job: `{call: sums__tell}`, says: `the argument "what" is missing`},
		"beyond types":       {agent: `skills: [sums]`, job: `{call: sums__tell, with: {what: abcd}}`, says: `maxLength`},
		"registered":         {agent: `skills: [sums]`, job: `{call: sums__other, with: {a: 1}}`},
		"no such tool":       {agent: `skills: [sums]`, job: `{call: sms__tell}`, says: `there is no tool "sms__tell"; did you mean "sums__tell"?`},
		"denied":             {agent: `skills: [sums], tools: {deny: ["sums__*"]}`, job: `{call: sums__tell, with: {what: a}}`, says: `the agent "clerk" may not use sums__tell`},
		"no skills":          {agent: `skill_access: none`, job: `{call: sums__tell, with: {what: a}}`, says: `the agent "clerk" has no skill that offers sums__tell`},
		"needs a secret":     {agent: `skills: [sums]`, change: [2]string{`"requiredBindings": []`, `"requiredBindings": [{"name": "key", "scope": "x", "description": "x", "required": true}]`}, says: "agents[0].skills[0]: warning: of the tools that the skill sums has for models some are not there: it needs the secret key", warning: true},
		"needs a server":     {agent: `skills: [./skills/sums]`, change: [2]string{`"capabilities": []`, `"capabilities": [], "requiredMcpServers": [{"name": "s", "description": "x"}]`}, says: "it needs the MCP server s, and the agent does not have it", warning: true},
		"no name for models": {agent: `skills: [sums]`, change: [2]string{`"name": "tell"`, `"name": "tell it"`}, says: `models cannot call a tool of the name "sums__tell it"`, warning: true},
		"needs settings":     {agent: `skills: [sums]`, change: [2]string{`"properties": {"unit"`, `"required": ["unit"], "properties": {"unit"`}, says: "the skill sums needs settings"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			change := strings.NewReplacer(`"version"`, tell)
			if c.change[0] != "" {
				change = strings.NewReplacer(c.change[0], c.change[1], `"version"`, strings.Replace(tell, c.change[0], c.change[1], 1))
			}
			job := c.job
			if job == "" {
				job = "{call: complete, with: {summary: It is done and that is all}}"
			}
			if c.agent != "" {
				c.agent = ", " + c.agent
			}

			path := configtest.Write(t, "rouse.yaml", fmt.Sprintf("version: 1\nhome: ./state\nskills: {roots: [{path: ./skills}]}\nagents: [{name: clerk%s}]\njobs: [{name: j, agent: clerk, playbook: [%s]}]\n", c.agent, job),
				"skills/sums/config-schema.json", change.Replace(`{"type": "object", "properties": {"unit": {"type": "string"}}}`),
				"skills/sums/module.ts", "export async function execute() { return {} }",
				"skills/sums/manifest.json", change.Replace(fmt.Sprintf(moduleManifest, "", "", "", platformHere(), "never", "none", "none", "declarative", false)))
			cfg, err := configtest.Load(path, nil)
			var said []string
			if err != nil {
				said = append(said, err.Error())
			} else {
				for _, w := range cfg.Warnings {
					said = append(said, w.String())
				}
			}

			all := strings.Join(said, "\n")
			if c.says == "" && err != nil || !strings.Contains(all, c.says) || c.warning && err != nil || c.says == "" && strings.Contains(all, "sums") {
				t.Errorf("said %q, want %q", all, c.says)
			}
		})
	}
}
