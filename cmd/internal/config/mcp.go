package config

import (
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"rouse/agent/tool"
	"rouse/agent/tool/mcp"
	"rouse/agent/tool/shell"
	"rouse/internal/fspath"
)

// MCPServer is a server of the Model Context Protocol, whose tools agents may have.
type MCPServer struct {
	Name    Name              `key:"name" need:"yes" say:"with which its tools are called: NAME__TOOL" eg:"files"`
	Argv    []string          `key:"argv" say:"of a program that serves on its standard input and output: the program with its arguments; it is confined as programs of agents are" eg:"[/opt/mcp/files-server]"`
	URL     string            `key:"url" say:"of a server with an address (streamable HTTP): where it is asked" eg:"https://mcp.example.com/mcp"`
	Env     map[string]string `key:"env" say:"what the program is given beside PATH, HOME and TMPDIR, as {API_KEY: secret:NAME}" eg:"{API_KEY: secret:files}"`
	Headers map[string]string `key:"headers" say:"sent with each request, as {Authorization: \"Bearer ${secret:NAME}\"}" eg:"{Authorization: 'Bearer ${secret:files}'}"`
	Read    []Path            `key:"read" say:"files and folders that the program may read beside the system, such as its own" eg:"[/opt/mcp]"`
	Files   string            `key:"files" enum:"none|read|write" default:"none" say:"what the program sees of the folders of its agent: nothing, or as the agent's commands read them, or change them"`
	Network string            `key:"network" enum:"none|host" default:"none" say:"of the program"`
	Near    bool              `key:"private_network" say:"the url may be on this machine or its network"`
	Private *bool             `key:"private" say:"what it answers is private data (B)" unset:"true where it is given a secret, or you are signed in there"`
	Start   Duration          `key:"start_timeout" default:"30s" positive:"yes" say:"until it has said which tools it has"`
	Timeout Duration          `key:"timeout" default:"2m" positive:"yes" say:"of one call"`
	Tools   mcpTools          `key:"tools" say:"which of its tools there are, and how they are treated"`
	OAuth   *mcpOAuth         `key:"oauth" say:"the client that you have registered where it has people sign in (rouse mcp-servers sign-in)" unset:"rouse registers itself"`

	At Position
}

type mcpTools struct {
	Allow    []string `key:"allow" say:"globs of its tools, by their own names; all others are left out, approved or not" unset:"all" eg:"['get_*']"`
	ReadOnly []string `key:"read_only" say:"globs of its tools that only read, by your word: a call that was cut off is made again" unset:"none; what the server says of that is not believed" eg:"['get_*']"`
	Ask      []string `key:"ask" say:"globs of its tools whose every call waits for your approval" unset:"none" eg:"['delete_*']"`
}

type mcpOAuth struct {
	Issuer       string   `key:"issuer" say:"the address of who signs people in, who alone gets the client_secret" unset:"whom the server names" eg:"https://login.example.com"`
	ClientID     string   `key:"client_id" need:"yes" say:"as the server knows rouse" eg:"rouse"`
	ClientSecret string   `key:"client_secret" secret:"yes" say:"secret:NAME; none for a client without one"`
	Scopes       []string `key:"scopes" unset:"what the server asks for" say:"what is asked for when somebody signs in" eg:"[read]"`
}

// Servers are the MCP servers, as agents use them.
func (c *Config) Servers() (out []mcp.Server) {
	for i := range c.MCP {
		out = append(out, c.MCP[i].server())
	}
	return out
}

// ServersOf are those of an agent, in the order in which it names them.
func (c *Config) ServersOf(a *Agent) (out []mcp.Server) {
	for _, name := range a.MCP {
		if s := c.serverOf(name); s != nil {
			out = append(out, s.server())
		}
	}
	return out
}

func (c *Config) serverOf(name string) *MCPServer {
	return find(nil, c.MCP, name, func(s *MCPServer) Name { return s.Name })
}

func (s *MCPServer) server() mcp.Server {
	out := mcp.Server{
		Name: string(s.Name), Argv: s.Argv, Files: shell.Exposure(s.Files), Network: s.Network == "host", URL: s.URL, Headers: s.Headers, Near: s.Near,
		Private: s.Private != nil && *s.Private, Public: s.Private != nil && !*s.Private, Start: time.Duration(s.Start), Timeout: time.Duration(s.Timeout),
		Allow: s.Tools.Allow, ReadOnly: s.Tools.ReadOnly, Ask: s.Tools.Ask,
	}
	for _, name := range slices.Sorted(maps.Keys(s.Env)) {
		out.Env = append(out.Env, name+"="+s.Env[name])
	}
	for _, p := range s.Read {
		out.Read = append(out.Read, string(p))
	}
	// The server may read a program or script that is named by its path.
	for _, script := range shell.Scripts(s.Argv) {
		if filepath.IsAbs(script) && !shell.IsSystemProgram(script) {
			out.Read = append(out.Read, script)
		}
	}
	if s.OAuth != nil {
		out.OAuth = &mcp.OAuth{Issuer: s.OAuth.Issuer, ClientID: s.OAuth.ClientID, ClientSecret: s.OAuth.ClientSecret, Scopes: s.OAuth.Scopes}
	}
	return out
}

var envName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// servers checks the MCP servers. What of them is private by default is decided here, where it is known what is a secret.
func (c *checker) servers() {
	names := unique(c, "mcp", c.cfg.MCP, func(s MCPServer) Name { return s.Name })
	modules := c.cfg.Modules()
	for at, s := range each("mcp", c.cfg.MCP) {
		if s.Private == nil && slices.ContainsFunc(c.d.refs, func(r SecretRef) bool { return strings.HasPrefix(r.Path, at+".") }) {
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
		if err := s.server().Check(); err != nil && c.hasNoProblem(at) && c.hasNoProblem(at+".url") {
			c.bad(at, "%s", err.Error())
		}
		c.serverKeys(at, s)
		c.serverProgram(at, s)

		for list, globs := range map[string][]string{"allow": s.Tools.Allow, "read_only": s.Tools.ReadOnly, "ask": s.Tools.Ask} {
			for at, g := range each(at+".tools."+list, globs) {
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

	for path, a := range each("agents", c.cfg.Agents) {
		for i, name := range a.MCP {
			at := itemOf(path+".mcp", i)
			c.reference(at, "MCP server", name, names)
			if slices.Contains(a.MCP[:i], name) {
				c.bad(at, "the MCP server %s is named twice", name)
			}
		}
	}
}

// serverKeys refuses keys that mean nothing for what a server is, and values that could not be sent.
func (c *checker) serverKeys(at string, s *MCPServer) {
	program := len(s.Argv) > 0
	for key, of := range map[string]bool{"env": true, "read": true, "files": true, "network": true, "headers": false, "private_network": false, "oauth": false} {
		if of != program && c.d.given(at+"."+key) {
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

// serverProgram looks at the program of a server: where it could not be read, and what an agent could put in its place.
func (c *checker) serverProgram(at string, s *MCPServer) {
	for at, p := range each(at+".read", s.Read) {
		c.ownersFolder(at, string(*p), "")
	}
	for _, script := range shell.Scripts(s.Argv) {
		if !filepath.IsAbs(script) {
			if strings.ContainsRune(script, filepath.Separator) {
				c.bad(at+".argv", "%s is no path from the root; a server has a working folder of its own", display(script))
			}
			continue
		}
		for i := range c.cfg.Agents {
			if a := &c.cfg.Agents[i]; writable(a, script) {
				c.bad(at+".argv", "the agent %s can write %s, and so could decide what the server is", a.Name, display(script)).Hint = moveProgram
			}
		}

		readable := slices.ContainsFunc(s.server().Read, func(p string) bool { return fspath.Within(script, p) })
		if !readable && !shell.IsSystemProgram(script) && s.Files == "none" {
			c.warn(at+".argv", "the server cannot read %s, so that it does not start", display(script)).Hint = "name its folder under read"
		}
	}
	if runsOthers := []string{"npx", "uvx", "bunx", "pnpm", "pipx"}; len(s.Argv) > 0 && slices.Contains(runsOthers, filepath.Base(s.Argv[0])) {
		c.warn(at+".argv", "%s fetches the server again each time, whatever it is by then, and needs the network for it; install it once, and name the program", filepath.Base(s.Argv[0]))
	}
}

// serverSpecs stand for the tools of the servers that there are.
func (c *checker) serverSpecs() (out tool.Specs) {
	for _, s := range c.cfg.Servers() {
		if mcp.CheckName(s.Name) == nil {
			out = append(out, mcp.OpenSpec(s))
		}
	}
	return out
}

// serverReach are the lines of an agent that bring labels because of its MCP servers.
func (c *checker) serverReach(r *reach, a *Agent) {
	for i, name := range a.MCP {
		configured := c.cfg.serverOf(name)
		if configured == nil {
			continue
		}
		s, what, at := configured.server(), "the MCP server "+name, c.d.place(itemOf(r.path+".mcp", i))
		r.add(untrusted, what, at)
		if s.IsOutward() {
			r.add(outward, what, at)
		}
		if s.Private {
			r.add(privateData, what, at)
		}
	}
}

// hasServerOf reports whether an agent has the MCP server of a tool.
func (c *checker) hasServerOf(a *Agent, name string) bool {
	server, _, ok := mcp.SplitName(name)
	return ok && slices.Contains(a.MCP, server)
}
