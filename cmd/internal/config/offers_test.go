package config_test

import (
	"fmt"
	"strings"
	"testing"
)

// OSL-32: lists of tools, and playbooks, name the tools that the skills of an agent offer; what they do not offer is said, and what is
// passed to them fits their schemas.
func TestOffers(t *testing.T) {
	t.Parallel()
	const tell = `"tools": [{"name": "tell", "description": "Tells.", "inputSchema": {"properties": {"what": {"type": "string", "maxLength": 3}}, "required": ["what"]}, "outputSchema": {}, "handlerExport": "tell"}], "version"`
	for name, c := range map[string]struct {
		agent   string // what it has beside its name
		job     string // its calls
		change  [2]string
		says    string // "": there is nothing to say
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

			path := write(t, "rouse.yaml", fmt.Sprintf("version: 1\nhome: ./state\nskills: {roots: [{path: ./skills}]}\nagents: [{name: clerk%s}]\njobs: [{name: j, agent: clerk, playbook: [%s]}]\n", c.agent, job),
				"skills/sums/config-schema.json", change.Replace(`{"type": "object", "properties": {"unit": {"type": "string"}}}`),
				"skills/sums/module.ts", "export async function execute() { return {} }",
				"skills/sums/manifest.json", change.Replace(fmt.Sprintf(moduleManifest, "", "", "", platformHere(), "never", "none", "none", "declarative", false)))
			cfg, err := load(path, nil)
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
