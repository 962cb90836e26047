package check

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"rouse/agent/tool"
	"rouse/agent/tool/shell"
	"rouse/agent/tool/web"
	"rouse/cmd/internal/config"
	"rouse/cmd/internal/config/yaml"
	"rouse/internal/fspath"
	"rouse/internal/text"
)

// call checks the arguments and grants of a call as far as they are known before the run.
func (c *checker) call(path string, call *config.PlaybookCall, j *config.Job, agent *config.Agent) {
	s := c.specOf(call.Call, agent)
	if !c.hasNoProblem(path+".call") || !c.hasNoProblem(path+".with") {
		return
	}
	if c.arguments(path+".with", s, call.With) && agent != nil {
		c.warnRepository(path+".call", agent, s)
		c.granted(path+".with", call, s, j, agent)
	}
}

// arguments reports arguments that do not fit a tool. It returns true if all of them fit.
func (c *checker) arguments(path string, s tool.Spec, given map[string]any) (fit bool) {
	takes, err := s.Arguments()
	if err != nil { // a faulty tool; its runs report the error
		return false
	}

	values := map[string]any{}
	for key, v := range given {
		values[key] = known(v)
	}
	wrong := takes.Check(values)
	for _, w := range wrong {
		at := strings.TrimSuffix(path+"."+w.Field, ".")
		if !c.hasNoProblem(at) {
			continue // the value could not be read
		}
		p := c.bad(at, "%s", w.Message)
		if !strings.Contains(w.Message, "; ") && !strings.Contains(w.Message, w.Expected) {
			p.Hint = "expected " + w.Expected
		}
	}
	return len(wrong) == 0
}

// known converts a value of a playbook to JSON types, with tool.Unknown for values that depend on
// the run.
func known(v any) any {
	switch v := v.(type) {
	case nil, bool:
		return v
	case string:
		if !isConstant(v) {
			return tool.Unknown{}
		}
		return v

	case int, int64, uint64, float64:
		return json.Number(fmt.Sprint(v))
	case []any:
		out := make([]any, len(v))
		for i, item := range v {
			out[i] = known(item)
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(v))
		for key, item := range v {
			out[key] = known(item)
		}
		return out
	}
	return tool.Unknown{}
}

// isConstant reports whether a text is neither an expression nor a template.
func isConstant(source string) bool {
	return !strings.HasPrefix(source, "= ") && !strings.Contains(source, "{{")
}

// granted reports whether the agent's grants cover a call. The arguments must fit.
func (c *checker) granted(path string, call *config.PlaybookCall, s tool.Spec, j *config.Job, agent *config.Agent) {
	argument := func(name string) string { // "" if it is absent or an expression
		v, _ := call.With[name].(string)
		if strings.HasPrefix(v, "= ") {
			return ""
		}
		return v
	}

	switch {
	case s.Requires == tool.RequiresCommands:
		c.commandFromFile(path+".command", call, agent)
		if command := argument("command"); command != "" {
			source, whole := withoutActions(command, shell.Unknown)
			c.judge(path+".command", shell.Foresee(agent.Commands(), agent.Secrets(), source), whole, agent,
				"grant it under grants: commands, or approve it for good when it asks")
		}
	case s.Requires == tool.RequiresNetwork:
		c.request(path, argument("url"), call.With["method"], agent)
	case s.Writes == tool.WritesNotice:
		if channel := argument("channel"); isConstant(channel) {
			c.reference(path+".channel", "channel", channel, c.channels)
		}
	case s.Scope == tool.ScopeAgent:
		name := cmp.Or(s.Path, "path")
		if file := argument(name); file != "" && isConstant(file) {
			if err := yaml.ShellPath(file); err != nil {
				c.bad(path+"."+name, "%s", err.Error())
				return
			}
			c.file(path+"."+name, file, s, j, agent)
		}
	}
}

// action matches the actions of a template.
var action = regexp.MustCompile(`(?s)\{\{.*?\}\}`)

// withoutActions replaces the actions of a template by a text. It returns true if there were no
// actions.
func withoutActions(source, in string) (out string, whole bool) {
	out = action.ReplaceAllLiteralString(source, in)
	return out, out == source
}

// judge reports that the authorizer will refuse a call or ask for approval.
func (c *checker) judge(path string, need tool.Access, whole bool, agent *config.Agent, hint string) {
	switch {
	case need.Refused != nil && whole:
		c.bad(path, "the call would be refused: %s", need.Refused.Message)
	case need.Refused != nil || need.MissingGrant == "":
	case agent.OnDenied == tool.OnDeniedFail || agent.OnDenied == tool.OnDeniedContinue:
		c.warn(path, "%s, so that the call is refused (on_denied: %s)", need.MissingGrant, agent.OnDenied).Hint = hint
	default:
		c.warn(path, "%s, so that each run waits for your approval", need.MissingGrant).Hint = hint
	}
}

// request checks the grant for a request. A partly known URL is enough if it contains the host.
func (c *checker) request(path, url string, method any, agent *config.Agent) {
	begin, rest, filled := strings.Cut(url, "{{")
	_, host, ok := strings.Cut(begin, "://")
	if !ok || filled && rest != "" && !strings.ContainsAny(host, "/?#") {
		return
	}

	with, _ := method.(string)
	if method != nil && (with == "" || !isConstant(with)) {
		return
	}

	need := web.Foresee(agent.Network(), agent.Secrets(), begin, with)
	c.judge(path+".url", need, !filled, agent, "grant the host, and the method, under grants: network")
}

// file reports a file that the agent may not read or write. There is no approval for such files.
func (c *checker) file(path, file string, s tool.Spec, j *config.Job, agent *config.Agent) {
	if !filepath.IsAbs(file) {
		file = filepath.Join(string(agent.Workdir), file)
	}

	verb, roots := "read", []string{}
	if writes(s) {
		verb, roots = "write", agent.Writes()
	} else {
		for _, r := range c.reads("", agent) {
			roots = append(roots, r.what)
		}
		if j.Watch != nil {
			roots = append(roots, string(j.Watch.Path))
		}
	}

	inside := func(root string) bool {
		return root != "" && (fspath.Within(file, root) || fspath.Within(config.RealPath(file), config.RealPath(root)))
	}
	ofSkill := func() bool {
		for _, r := range c.skillRoots {
			if inside(r.Path) {
				return true
			}
		}
		return slices.ContainsFunc(agent.Skills, func(name string) bool { return inside(c.d.Resolve(agent.At.File, name)) })
	}

	if slices.ContainsFunc(roots, inside) || verb == "read" && ofSkill() {
		return
	}

	shown := make([]string, len(roots))
	for i, r := range roots {
		shown[i] = config.Display(r)
	}
	c.bad(path, "%s is outside of what the agent may %s: %s", config.Display(file), verb, text.List(shown, 10)).Hint = "grant its folder under grants: " + verb
}

// writes reports whether the calls of a tool change the file of their argument path.
func writes(s tool.Spec) bool {
	return s.Writes == tool.WritesFiles || s.Writes == tool.WritesUndo || s.Path != "" && s.Writes == tool.WritesElsewhere
}

// lacks returns the reason why the runs of an agent lack a tool, with a hint, or "" if they have
// it.
func (c *checker) lacks(agent *config.Agent, s tool.Spec) (why, hint string) {
	named := tool.IsNamed(agent.Tools.Allow, s.Name)
	switch {
	case s.AliasOf != "" && !named:
		return fmt.Sprintf("%s is another name of %s, which only an agent has whose tools.allow names it", s.Name, s.AliasOf), "call " + s.AliasOf
	case s.Requires == tool.RequiresModel || s.Requires == tool.RequiresUnlisted:
		return fmt.Sprintf("%s is for models, and a playbook has none", s.Name), "use a prompt"
	case agent.LacksHostTool(s.Name):
		return fmt.Sprintf("the agent %q has mode: none, so it has no %s", agent.Name, s.Name), "choose another mode for it"
	case s.Requires == tool.RequiresNetwork && len(agent.Grants.Network) == 0:
		return fmt.Sprintf("the agent %q may ask no host, so it has no %s", agent.Name, s.Name), "name the hosts under grants: network"
	case s.Requires == tool.RequiresCommands && !named && len(agent.Grants.Commands) == 0:
		return fmt.Sprintf("the agent %q may run no program, so it has no %s", agent.Name, s.Name), "name what it may run under grants: commands"
	case s.Requires == tool.RequiresServer && !c.hasServerOf(agent, s.Name):
		return fmt.Sprintf("the agent %q does not have the MCP server of %s", agent.Name, s.Name), "name the server under its mcp"
	case s.Requires == tool.RequiresOffer && !c.offers(agent, s.Name):
		return fmt.Sprintf("the agent %q has no skill that offers %s", agent.Name, s.Name), "name the skill under its skills; a warning there says what it lacks"
	}
	return "", ""
}

func (c *checker) warnRepository(path string, agent *config.Agent, s tool.Spec) {
	if s.Requires != tool.RequiresRepository || agent.Workdir == "" || tool.IsNamed(agent.Tools.Allow, s.Name) {
		return
	}
	if _, err := os.Lstat(filepath.Join(string(agent.Workdir), ".git")); err != nil {
		c.warn(path, "%s is no git repository, so that the agent has no %s", config.Display(string(agent.Workdir)), s.Name).Hint = "make it one with git init, or set workdir to one"
	}
}
