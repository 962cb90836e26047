package check

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"rouse/agent/model/playbook"
	"rouse/agent/tool"
	"rouse/cmd/internal/config"
)

// playbook checks a fixed list of calls. Results saved by a call are known to later calls.
func (c *checker) playbook(path string, j *config.Job, agent *config.Agent) {
	if len(j.Playbook) == 0 && c.hasNoProblem(path+".playbook") {
		c.bad(path+".playbook", "has no calls")
	}

	// The numbers of calls of each and if are not known yet.
	certain := 0
	for _, call := range j.Playbook {
		if call.Each == nil && call.If == "" {
			certain++
		}
	}
	if most, bound := j.Bounds.PlaybookCalls(); certain > most && most > 0 {
		c.warn(path+"."+bound, "the playbook makes %d calls at least, and each run ends after %d: raise %s", certain, most, bound)
	}

	names := scope(j)
	for at, call := range config.Each(path+".playbook", j.Playbook) {
		if call.Call != "" {
			switch s := c.tools.Find(call.Call); {
			case s.Requires == tool.RequiresPhases:
				c.bad(at+".call", "a playbook is a fixed list of calls and never goes in phases").Hint = "call the tool itself, or use a prompt"
			case s.Requires == tool.RequiresModule:
				c.bad(at+".call", "%s is for the module of a skill", call.Call).Hint = "use skill: to run one"
			case s.Waits:
				c.tool(at+".call", call.Call, agent)
				c.bad(at+".call", "a playbook cannot hear an answer, so it cannot ask").Hint = "use a prompt for what needs a person"
			default:
				c.tool(at+".call", call.Call, agent)
			}

			// Check calls one by one, so that a problem has the position of its call. Values are
			// checked below.
			step := call.Step()
			step.If, step.Each, step.OnError, step.Expect.That = "", nil, "", ""
			step.With = maps.Clone(call.With)
			maps.DeleteFunc(step.With, func(argument string, _ any) bool { return argument != "must_succeed" })

			for _, err := range playbook.Check([]playbook.Call{step}, scope(j)) {
				_, what, _ := strings.Cut(err.Error(), "): ") // drop the label, because the position replaces it
				c.bad(at, "%s", what)
			}
		}

		if text, ok := call.Each.(string); ok && !strings.HasPrefix(text, "= ") {
			c.bad(at+".each", "must be a list, or an expression that begins with \"= \", not %q", config.Short(text))
		}

		each := c.value(at+".each", call.Each, names)
		inside := names
		if call.Each != nil {
			// Clone, because append could write into names, which later calls use.
			inside = append(slices.Clone(names), "item", "index")
		}

		c.callChecks(at, call, append(slices.Clone(inside), "result"))
		if t := each.Type; t != nil && t.Kind() != reflect.Slice && c.hasNoProblem(at+".each") {
			c.bad(at+".each", "gives a %s, which is not a list", t.Kind())
		}

		c.item = each.Item
		if t := c.expression(at+".if", call.If, inside).Type; t != nil && t.Kind() != reflect.Bool && c.hasNoProblem(at+".if") {
			c.bad(at+".if", "gives a %s, which is neither true nor false", t.Kind())
		}
		c.value(at+".with", call.With, inside)
		c.item = nil
		if call.Call != "" {
			c.call(at, call, j, agent)
		}
		if call.Save != "" {
			names, c.saved = append(slices.Clone(names), call.Save), append(c.saved, call.Save)
		}
	}
}

func (c *checker) callChecks(at string, call *config.PlaybookCall, names []string) {
	s := c.tools.Find(call.Call)
	known := s.Name != ""
	if known && call.MustSucceed != nil && s.Reports == tool.ReportsNothing {
		c.bad(at+".must_succeed", "whatever %s cannot do is a failed call already", call.Call).Hint = "leave it out; on_error: continue passes over a failure"
	}

	if !c.d.Given(at + ".expect") {
		return
	}

	e, at := call.Expect, at+".expect"
	if len(e.Exit)+len(e.Status) == 0 && e.That == "" && c.hasNoProblem(at) {
		c.bad(at, "says nothing; give exit, status or that")
	}
	if known && len(e.Exit) > 0 && s.Reports != tool.ReportsExit {
		c.bad(at+".exit", "%s has no exit code", call.Call).Hint = "exit goes with shell_run; say what is expected of a result with that: \"result. …\""
	}
	if known && len(e.Status) > 0 && s.Reports != tool.ReportsStatus {
		c.bad(at+".status", "%s has no status", call.Call).Hint = "status goes with web_fetch; say what is expected of a result with that: \"result. …\""
	}

	c.expression(at+".that", e.That, names)
}

func (c *checker) tool(path, name string, agent *config.Agent) {
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

	if s.Requires == tool.RequiresSelfScheduling && !agent.SelfScheduling.On() {
		c.bad(path, "the agent %q does not plan its own runs, so it has no %s", agent.Name, name).Hint = "give it self_scheduling: {mode: ambient}"
	}

	if s.Requires == tool.RequiresDatabase {
		c.needsDatabase(path, agent)
	}

	if s.Requires == tool.RequiresWorkspaces {
		c.keeping = append(c.keeping, keepingCall{path, name, agent})
	}

	if why, hint := c.lacks(agent, s); why != "" && c.hasNoProblem(path) {
		c.bad(path, "%s", why).Hint = hint
	}
}

// value checks templates and expressions at any depth. It returns the shape of an expression.
func (c *checker) value(path string, v any, names []string) (gives playbook.Shape) {
	switch v := v.(type) {
	case string:
		if source, ok := strings.CutPrefix(v, "= "); ok {
			return c.expression(path, source, names)
		}
		c.template(path, v, names)
	case []any:
		for at, item := range config.Each(path, v) {
			c.value(at, *item, names)
		}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			c.value(config.Join(path, key), v[key], names)
		}
	}
	return gives
}
