package config

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"rouse/agent/tool"
	"rouse/agent/tool/shell"
)

// Commands are the programs that an agent may run unasked.
func (a *Agent) Commands() []shell.Grant {
	var out []shell.Grant
	for _, g := range a.Grants.Commands {
		out = append(out, shell.Grant{Argv: g.Argv, Network: g.Network == "host", Written: g.written})
	}
	return out
}

func (c *checker) commands(agentPath string, a *Agent) {
	for i := range a.Grants.Commands {
		g, at := &a.Grants.Commands[i], fmt.Sprintf("%s.grants.commands[%d].argv", agentPath, i)
		written := slices.Clone(g.Argv)
		if c.fromFile(at, g.Argv, string(a.Workdir)); !slices.Equal(written, g.Argv) {
			g.written = written
			for n, word := range g.Argv {
				if _, err := os.Stat(word); err != nil && word != written[n] {
					c.warn(at, "the file %s does not exist yet; %s is relative to the folder of this file", display(word), written[n])
				}
			}
		}
		c.elsewhere(at, g.Argv)
	}

	for i, g := range a.Commands() {
		at := fmt.Sprintf("%s.grants.commands[%d]", agentPath, i)
		// A grant that could not be read has an argv of nothing, which means something else.
		if !c.d.given(at+".argv") || !c.hasNoProblem(at) { // said already
			continue
		}

		if err := g.Check(); err != nil {
			c.bad(at+".argv", "%s", err.Error()).Hint = `write the program and a pattern for each argument, as in [pandoc, "*.md", -o, "*.html"]; a last "*" stands for any arguments`
			continue
		}

		// In a private clone an agent is to have all of git, and the tools of the project.
		if why := grantsEverything(g.Argv); why != "" && a.Checkout == nil {
			c.warn(at+".argv", "%s, so that this grant is one for any program, within the agent's folders", why)
		} else {
			c.writableScripts(at, a, g.Argv)
		}
	}

	// Command tools come with the grant, but tools.allow and tools.deny can still take them away.
	runs := c.toolsGiven(tool.RequiresCommands)
	if len(a.Grants.Commands) > 0 && len(runs) > 0 && len(runs.Where(a.Tools.permits)) == 0 {
		first := runs.Where(func(s tool.Spec) bool { return s.AliasOf == "" })
		c.warn(agentPath+".grants.commands", "the agent's tools have no %s, so that it can run none of them", strings.Join(first.Names(), " or "))
	}
}

// writableScripts warns of a granted program, or script, that the agent itself can write: the grant is then one
// for whatever it writes.
func (c *checker) writableScripts(at string, a *Agent, argv []string) {
	for _, script := range shell.Scripts(argv) {
		file := script
		if !filepath.IsAbs(file) {
			file = filepath.Join(string(a.Workdir), file)
		}
		if writable(a, file) {
			c.warn(at+".argv", "the agent can write %s, so that it decides what this grant runs; keep the script out of the agent's folders, or leave the grant out and approve the command, which holds for one content", script)
		}
	}
}

// escaped is what stands for itself in a pattern.
var escaped = regexp.MustCompile(`\\.`)

// grantsEverything says why a grant allows any program at all; "" where it does not. An interpreter
// whose arguments are all fixed is what its owner decided.
func grantsEverything(argv []string) string {
	open := func(from int) bool {
		return slices.ContainsFunc(argv[min(from, len(argv)):], func(element string) bool {
			return strings.ContainsAny(escaped.ReplaceAllString(element, ""), "*?[")
		})
	}
	name := strings.ToLower(strings.TrimSuffix(path.Base(strings.ReplaceAll(argv[0], `\`, "/")), ".exe"))
	switch {
	case !open(1):
		return ""
	case shell.Interprets(name):
		return name + " runs what its arguments say"
	case name == "find" && (slices.Contains(argv, "-exec") || argv[len(argv)-1] == "*"):
		return "find runs programs with -exec"
	case name == "git" && argv[1] == "*":
		return "git runs programs that its options and the repository name"
	case name == "tar" && argv[len(argv)-1] == "*":
		return "tar runs programs with --to-command"
	}

	return ""
}
