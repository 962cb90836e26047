package config

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"rouse/agent/tool"
	"rouse/agent/tool/shell"
)

// Commands are the programs that an agent may run unasked.
func (a *Agent) Commands() []shell.Grant {
	var out []shell.Grant
	for _, g := range a.Grants.Commands {
		out = append(out, shell.Grant{Argv: g.Argv, Network: g.Network == "host"})
	}
	return out
}

// speaking are programs that run what their arguments, or files, tell them.
var speaking = strings.Fields(`awk bash bun busybox cargo cmd cmd.exe cmake crontab csh dash deno docker doas ed emacs env expect fish gawk gdb go irb java jshell julia ksh lua make mawk
	nice node nodejs nohup npm npx osascript parallel perl php podman powershell powershell.exe pwsh pnpm python python2 python3 R Rscript ruby rundll32 screen sed setsid sh socat sqlite3 ssh
	strace su sudo systemd-run tclsh time timeout tmux uv vi vim watch wish xargs yarn zsh`)

func (c *checker) commands(at string, a *Agent) {
	for i, g := range a.Commands() {
		at := fmt.Sprintf("%s.grants.commands[%d]", at, i)
		// A grant that could not be read has an argv of nothing, which means something else.
		if !c.d.given(at+".argv") || !c.hasNoProblem(at) { // said already
			continue
		}

		if err := g.Check(); err != nil {
			c.bad(at+".argv", "%s", err.Error()).Hint = `write the program and a pattern for each argument, as in [pandoc, "*.md", -o, "*.html"]; a last "*" stands for any arguments`
			continue
		}

		if why := grantsEverything(g.Argv); why != "" {
			c.warn(at+".argv", "%s, so that this grant is one for any program, within the agent's folders", why)
		}
	}

	// Command tools come with the grant, but tools.allow and tools.deny can still take them away.
	runs := c.toolsGiven(tool.RequiresCommands)
	if len(a.Grants.Commands) > 0 && len(runs) > 0 && len(runs.Where(a.Tools.permits)) == 0 {
		first := runs.Where(func(s tool.Spec) bool { return s.AliasOf == "" })
		c.warn(at+".grants.commands", "the agent's tools have no %s, so that it can run none of them", strings.Join(first.Names(), " or "))
	}
}

// grantsEverything says why a grant allows any program at all; "" where it does not. An interpreter
// whose arguments are all fixed is what its owner decided.
func grantsEverything(argv []string) string {
	open := func(from int) bool {
		return slices.ContainsFunc(argv[min(from, len(argv)):], func(element string) bool { return strings.ContainsAny(element, "*?[") })
	}
	name := strings.ToLower(strings.TrimSuffix(path.Base(strings.ReplaceAll(argv[0], `\`, "/")), ".exe"))
	// python3.12 and lua5.4 are the same interpreters.
	versioned := strings.TrimRight(name, "0123456789.-")
	switch {
	case !open(1):
		return ""
	case slices.Contains(speaking, name), slices.Contains(speaking, versioned):
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
