package config_test

import (
	"errors"
	"strings"
	"testing"

	"rouse/cmd/internal/config"
)

// Agents may work in phases; their playbooks never do, and the tool of the phases is not
// theirs to allow or deny. AYA-06, AYA-11.
func TestPhased(t *testing.T) {
	const text = `
version: 1
home: ./state
models: [{name: m, provider: openai, base_url: "http://localhost:1/v1", model: x}]
agents:
  - {name: a, loop: phased%s}
jobs:
  - {name: j, agent: a, every: 1h, playbook: [{call: %s}]}
`

	build := func(agent, call string) string {
		return strings.Replace(strings.Replace(text, "%s", agent, 1), "%s", call, 1)
	}
	for name, c := range map[string]struct{ agent, call, problem, warning string }{
		"as it is":    {"", "db_schema", "", ""},
		"few steps":   {", bounds: {steps: 20}", "db_schema", "", ""},
		"many steps":  {", bounds: {steps: 60}", "db_schema", "", "agents[0].bounds.steps: warning: a run in phases (loop: phased) takes at most 20 steps"},
		"denied":      {", tools: {deny: [agent_step]}", "db_schema", "agent_step comes with loop: phased", ""},
		"in playbook": {"", "agent_step", "a playbook is a fixed list of calls and never goes in phases", ""},
	} {
		cfg, err := load(write(t, "rouse.yaml", build(c.agent, c.call)), nil)
		var all *config.Errors
		got := ""
		if errors.As(err, &all) {
			got = all.Error()
		}
		if (c.problem == "") != (got == "") || !strings.Contains(got, c.problem) || strings.Count(got, "\n") > 1 {
			t.Errorf("%s: %s", name, got)
		}

		warned := ""
		for _, w := range cfg.Warnings {
			warned += w.String() + "\n"
		}
		if !strings.Contains(warned, c.warning) || (c.warning == "" && strings.Contains(warned, "phases")) {
			t.Errorf("%s: warnings %q", name, warned)
		}
		if err == nil && cfg.Agents[0].Loop != "phased" {
			t.Errorf("%s: %+v", name, cfg.Agents[0])
		}
	}
}
