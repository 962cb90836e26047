package check

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"rouse/agent/tool"
	"rouse/agent/tool/mcp"
	"rouse/agent/tool/shell"
	"rouse/cmd/internal/config"
	"rouse/internal/fspath"
)

var envName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// servers checks the MCP servers. It also sets the default of private, which depends on secrets.
func (c *checker) servers() {
	names := unique(c.report, "mcp", c.cfg.MCP, func(s config.MCPServer) config.Name { return s.Name })
	modules := c.cfg.Modules()
	for at, s := range config.Each("mcp", c.cfg.MCP) {
		if s.Private == nil && c.d.AsksForSecret(at) {
			yes := true
			s.Private = &yes
		}
		if s.Name == "" || s.At.Line == 0 {
			continue
		}
		c.fromFile(at+".argv", s.Argv, "")

		if modules[string(s.Name)] != nil {
			c.bad(at+".name", "the skill %s has tools of such names already", s.Name)
		}
		if err := s.Server().Check(); err != nil && c.hasNoProblem(at) && c.hasNoProblem(at+".url") {
			c.bad(at, "%s", err.Error())
		}
		c.serverKeys(at, s)
		c.serverProgram(at, s)

		for list, globs := range map[string][]string{"allow": s.Tools.Allow, "read_only": s.Tools.ReadOnly, "ask": s.Tools.Ask} {
			for at, g := range config.Each(at+".tools."+list, globs) {
				if _, err := filepath.Match(*g, ""); err != nil {
					c.bad(at, "the pattern %q is broken", *g)
				}
				if name, ok := strings.CutPrefix(*g, string(s.Name)+mcp.Mark); ok {
					c.bad(at, "names the tool as agents do; here it is %s", name)
				}
			}
		}
		if s.Tools.Allow != nil && len(s.Tools.Allow) == 0 {
			c.bad(at+".tools.allow", "is empty, which would allow every tool").Hint = "leave the server out where no tool of it is wanted"
		}
	}

	for path, a := range config.Each("agents", c.cfg.Agents) {
		for i, name := range a.MCP {
			at := config.ItemOf(path+".mcp", i)
			c.reference(at, "MCP server", name, names)
			if slices.Contains(a.MCP[:i], name) {
				c.bad(at, "the MCP server %s is named twice", name)
			}
		}
	}
}

// serverKeys refuses keys that do not fit the kind of a server, and values that cannot be sent.
func (c *checker) serverKeys(at string, s *config.MCPServer) {
	program := len(s.Argv) > 0
	for key, of := range map[string]bool{"env": true, "read": true, "files": true, "network": true, "headers": false, "private_network": false, "oauth": false} {
		if of != program && c.d.Given(at+"."+key) {
			c.bad(at+"."+key, "is for %s", map[bool]string{true: "a server with argv", false: "a server with url"}[of])
		}
	}

	c.headers(at+".headers", s.Headers)
	for name, value := range s.Env {
		switch {
		case !envName.MatchString(name) || strings.ContainsRune(value, 0):
			c.bad(at+".env."+name, "is no variable that a program could be given")
		case slices.Contains([]string{"PATH", "HOME", "TMPDIR"}, name):
			c.bad(at+".env."+name, "is set by rouse: the program has folders of its own, which are gone afterwards")
		}
	}
}

// serverProgram refuses the program of a server if it would be unreadable or if an agent could
// replace it.
func (c *checker) serverProgram(at string, s *config.MCPServer) {
	for at, p := range config.Each(at+".read", s.Read) {
		c.ownersFolder(at, string(*p), "")
	}
	for _, script := range shell.Scripts(s.Argv) {
		if !filepath.IsAbs(script) {
			if strings.ContainsRune(script, filepath.Separator) {
				c.bad(at+".argv", "%s is no path from the root; a server has a working folder of its own", config.Display(script))
			}
			continue
		}
		for i := range c.cfg.Agents {
			if a := &c.cfg.Agents[i]; writable(a, script) {
				c.bad(at+".argv", "the agent %s can write %s, and so could decide what the server is", a.Name, config.Display(script)).Hint = moveProgram
			}
		}

		readable := slices.ContainsFunc(s.Server().Read, func(p string) bool { return fspath.Within(script, p) })
		if !readable && !shell.IsSystemProgram(script) && s.Files == "none" {
			c.warn(at+".argv", "the server cannot read %s, so that it does not start", config.Display(script)).Hint = "name its folder under read"
		}
	}
	if runsOthers := []string{"npx", "uvx", "bunx", "pnpm", "pipx"}; len(s.Argv) > 0 && slices.Contains(runsOthers, filepath.Base(s.Argv[0])) {
		c.warn(at+".argv", "%s fetches the server again each time, whatever it is by then, and needs the network for it; install it once, and name the program", filepath.Base(s.Argv[0]))
	}
}

// serverSpecs returns placeholders for the tools of the configured servers.
func (c *checker) serverSpecs() (out tool.Specs) {
	for _, s := range config.AllServers(c.cfg.MCP) {
		if mcp.CheckName(s.Name) == nil {
			out = append(out, mcp.OpenSpec(s))
		}
	}
	return out
}

// hasServerOf reports whether an agent has the MCP server of a tool.
func (c *checker) hasServerOf(a *config.Agent, name string) bool {
	server, _, ok := mcp.SplitName(name)
	return ok && slices.Contains(a.MCP, server)
}
