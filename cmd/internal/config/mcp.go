package config

import (
	"maps"
	"path/filepath"
	"slices"
	"time"

	"rouse/agent/tool/mcp"
	"rouse/agent/tool/shell"
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

// AllServers returns MCP servers as agents use them.
func AllServers(servers []MCPServer) (out []mcp.Server) {
	for i := range servers {
		out = append(out, servers[i].Server())
	}
	return out
}

// ServersOf returns the servers of an agent, in the order in which it names them.
func ServersOf(servers []MCPServer, a *Agent) (out []mcp.Server) {
	for _, name := range a.MCP {
		if s := ServerNamed(servers, name); s != nil {
			out = append(out, s.Server())
		}
	}
	return out
}

// ServerNamed returns the server of a name, or nil if there is none.
func ServerNamed(servers []MCPServer, name string) *MCPServer {
	return find(nil, servers, name, func(s *MCPServer) Name { return s.Name })
}

func (s *MCPServer) Server() mcp.Server {
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
