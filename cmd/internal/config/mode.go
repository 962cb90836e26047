package config

import (
	"fmt"

	"rouse/agent"
)

// maxSoul is how long a soul may be, in bytes: it stands before every prompt.
const maxSoul = 8_000

// settle decides where an agent works, when its mode and what else is written of it are known (OSA-40). own is the folder that
// it has in the home. Isolated it works there, and its workdir is one more folder that it may read.
func (a *Agent) settle(own Path) {
	if a.Mode == agent.ModeIsolated && a.Workdir != "" && a.Workdir != own { // the same in a configuration that rouse has shown
		a.HostFolder = string(a.Workdir)
		a.Grants.Read = append(a.Grants.Read, readGrant{Path: a.Workdir, Private: a.Private.Workdir})
		a.Workdir = ""
	}
	if a.Workdir == "" {
		a.Workdir = own
	}
}

// checkMode refuses what a mode does not leave room for: of two lines that contradict each other none wins in silence.
func (c *checker) checkMode(path string, a *Agent) {
	switch a.Mode {
	case agent.ModeIsolated:
		c.contradicts(path, ".grants.write", len(a.Grants.Write) > 0, "with mode: isolated the agent writes in a folder of its own and nowhere else")
		c.contradicts(path, ".sandbox", a.Sandbox == "off", "mode: isolated cannot be held by programs without confinement")
		c.contradicts(path, ".min_tier", a.MinTier > "B" && c.hasNoProblem(path+".min_tier"),
			"mode: isolated needs programs that are confined on tier B or A: the weaker ones do not keep what it reads from being written")
	case agent.ModeNone:
		c.contradicts(path, ".workdir", c.d.given(path+".workdir"), "with mode: none the agent has no file tools")
		c.contradicts(path, ".grants.read", len(a.Grants.Read) > 0, "with mode: none the agent has no file tools")
		c.contradicts(path, ".grants.write", len(a.Grants.Write) > 0, "with mode: none the agent has no file tools")
		c.contradicts(path, ".grants.commands", len(a.Grants.Commands) > 0, "with mode: none the agent runs no programs")
		for i, name := range a.MCP {
			s := find(nil, c.cfg.MCP, name, func(s *MCPServer) Name { return s.Name })
			c.contradicts(path, fmt.Sprintf(".mcp[%d]", i), s != nil && len(s.Argv) > 0, "with mode: none the agent runs no programs, and this MCP server is one")
		}
	}
}

// lacksHostTool says whether a tool is one of files or programs, of an agent that has neither.
func (a *Agent) lacksHostTool(name string) bool {
	return a.Mode == agent.ModeNone && agent.IsHostTool(name)
}

func (c *checker) contradicts(path, key string, given bool, why string) {
	if given {
		c.bad(path+key, "%s; leave this out, or choose another mode", why)
	}
}

// checkSoul refuses a soul that would leave little room for the prompt.
func (c *checker) checkSoul(path string, a *Agent) {
	if c.d.given(path+".soul") && c.d.given(path+".soul_file") {
		c.bad(path+".soul_file", "give soul or soul_file, not both")
	}
	if len(a.Soul) > maxSoul {
		key := ".soul"
		if a.SoulText != "" {
			key = ".soul_file"
		}
		c.bad(path+key, "is %d bytes long, and a soul has %d at most; what it is to do belongs under instructions", len(a.Soul), maxSoul)
	}
}
