package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"rouse/agent/model/playbook"
	"rouse/agent/tool"
)

// playbook checks a fixed list of calls; what a call saves is known from the next on.
func (c *checker) playbook(path string, j *Job, agent *Agent) {
	if len(j.Playbook) == 0 && c.hasNoProblem(path+".playbook") {
		c.bad(path+".playbook", "has no calls")
	}

	names := scope(j)
	for i, call := range j.Playbook {
		at := fmt.Sprintf("%s.playbook[%d]", path, i)
		if call.Call != "" {
			switch s := c.tools.Find(call.Call); {
			case s.Requires == tool.RequiresPhases:
				c.bad(at+".call", "a playbook is a fixed list of calls and never goes in phases").Hint = "call the tool itself, or use a prompt"
			case s.Waits:
				c.tool(at+".call", call.Call, agent)
				c.bad(at+".call", "a playbook cannot hear an answer, so it cannot ask").Hint = "use a prompt for what needs a person"
			default:
				c.tool(at+".call", call.Call, agent)
			}

			step := call.Step()
			// Call by call, so that a problem has the place of its call and not of the playbook.
			step.OnError = "" // the decoder has looked at it
			for _, err := range playbook.Check([]playbook.Call{step}, scope(j)) {
				_, what, _ := strings.Cut(err.Error(), "): ") // without the label, which the place tells
				c.bad(at, "%s", what)
			}
		}

		if text, ok := call.Each.(string); ok && !strings.HasPrefix(text, "= ") {
			c.bad(at+".each", "must be a list, or an expression that begins with \"= \", not %q", short(text))
		}

		c.value(at+".each", call.Each, names)
		inside := names
		if call.Each != nil {
			// Clone, since an append could write into names, which the next calls see.
			inside = append(slices.Clone(names), "item", "index")
		}

		if text, ok := call.Each.(string); ok && strings.TrimSpace(strings.TrimPrefix(text, "=")) == "Files" {
			c.item = fileFields
		}

		c.expression(at+".if", call.If, inside)
		c.value(at+".with", call.With, inside)
		c.item = nil
		if call.Save != "" {
			names = append(slices.Clone(names), call.Save)
		}
	}
}

// tool checks that a playbook's tool exists and that its agent may use it.
func (c *checker) tool(path, name string, agent *Agent) {
	s := c.tools.Find(name)
	if c.tools != nil && s.Name == "" {
		c.unknownTool(path, name)
		return
	}

	if agent == nil {
		return
	}

	if !tool.IsAllowed(agent.Tools.Allow, agent.Tools.Deny, name) {
		c.bad(path, "the agent %q may not use %s", agent.Name, name).Hint = "see its tools.allow and tools.deny"
	}

	if s.Requires == tool.RequiresSelfScheduling && !agent.SelfScheduling.on() {
		c.bad(path, "the agent %q does not plan its own runs, so it has no %s", agent.Name, name).Hint = "give it self_scheduling: {mode: ambient}"
	}

	if s.Requires == tool.RequiresDatabase && !On(agent.Database.Enabled) {
		c.bad(path, "the agent %q has no database (database.enabled: false)", agent.Name)
	}
}

// value checks templates and expressions at any depth.
func (c *checker) value(path string, v any, names []string) {
	switch v := v.(type) {
	case string:
		if source, ok := strings.CutPrefix(v, "= "); ok {
			c.expression(path, source, names)
			return
		}
		c.fields(path, v, names)
	case []any:
		for i, item := range v {
			c.value(fmt.Sprintf("%s[%d]", path, i), item, names)
		}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			c.value(join(path, key), v[key], names)
		}
	}
}
