package config

import (
	"maps"
	"path/filepath"
	"slices"
	"time"

	"rouse/agent/tool/mcp"
	"rouse/agent/tool/shell"
)

// MCPServer is a server of the Model Context Protocol that offers tools to agents.
type MCPServer struct {
	Name    Name              `key:"name" required:"yes" doc:"with which its tools are called: NAME__TOOL" example:"files"`
	Argv    []string          `key:"argv" doc:"of a program that serves on its standard input and output: the program with its arguments; it is confined as programs of agents are" example:"[/opt/mcp/files-server]"`
	URL     string            `key:"url" doc:"of a server with an address (streamable HTTP): where it is asked" example:"https://mcp.example.com/mcp"`
	Env     map[string]string `key:"env" doc:"what the program is given beside PATH, HOME and TMPDIR, as {API_KEY: secret:NAME}" example:"{API_KEY: secret:files}"`
	Headers map[string]string `key:"headers" doc:"sent with each request, as {Authorization: \"Bearer ${secret:NAME}\"}" example:"{Authorization: 'Bearer ${secret:files}'}"`
	Read    []Path            `key:"read" doc:"files and folders that the program may read beside the system, such as its own" example:"[/opt/mcp]"`
	Files   string            `key:"files" enum:"none|read|write" default:"none" doc:"what the program sees of the folders of its agent: nothing, or as the agent's commands read them, or change them"`
	Network string            `key:"network" enum:"none|host" default:"none" doc:"of the program"`
	Near    bool              `key:"private_network" doc:"the url may be on this machine or its network"`
	Private *bool             `key:"private" doc:"what it answers is private data (B)" defaultdoc:"true where it is given a secret, or you are signed in there"`
	Start   Duration          `key:"start_timeout" default:"30s" positive:"yes" doc:"until it has said which tools it has"`
	Timeout Duration          `key:"timeout" default:"2m" positive:"yes" doc:"of one call"`
	Tools   mcpTools          `key:"tools" doc:"which of its tools there are, and how they are treated"`
	OAuth   *mcpOAuth         `key:"oauth" doc:"the client that you have registered where it has people sign in (rouse mcp-servers sign-in)" defaultdoc:"rouse registers itself"`

	At Position
}

// mcpTools filters the tools of a server and sets how their calls are treated.
type mcpTools struct {
	Allow    []string `key:"allow" doc:"globs of its tools, by their own names; all others are left out, approved or not" defaultdoc:"all" example:"['get_*']"`
	ReadOnly []string `key:"read_only" doc:"globs of its tools that only read, by your word: a call that was cut off is made again" defaultdoc:"none; what the server says of that is not believed" example:"['get_*']"`
	Ask      []string `key:"ask" doc:"globs of its tools whose every call waits for your approval" defaultdoc:"none" example:"['delete_*']"`
}

// mcpOAuth is an OAuth client that the user has registered with a server.
type mcpOAuth struct {
	Issuer       string   `key:"issuer" doc:"the address of who signs people in, who alone gets the client_secret" defaultdoc:"whom the server names" example:"https://login.example.com"`
	ClientID     string   `key:"client_id" required:"yes" doc:"as the server knows rouse" example:"rouse"`
	ClientSecret string   `key:"client_secret" secret:"yes" doc:"secret:NAME; none for a client without one"`
	Scopes       []string `key:"scopes" defaultdoc:"what the server asks for" doc:"what is asked for when somebody signs in" example:"[read]"`
}

// AllServers converts all servers to the form that agents use.
func AllServers(servers []MCPServer) (out []mcp.Server) {
	for i := range servers {
		out = append(out, servers[i].Server())
	}
	return out
}

// ServersOf returns the servers of an agent, in the order of the agent's list.
func ServersOf(servers []MCPServer, a *Agent) (out []mcp.Server) {
	for _, name := range a.MCP {
		if s := ServerNamed(servers, name); s != nil {
			out = append(out, s.Server())
		}
	}
	return out
}

// ServerNamed returns the server with a name, or nil if it is not configured.
func ServerNamed(servers []MCPServer, name string) *MCPServer {
	return find(nil, servers, name, func(s *MCPServer) Name { return s.Name })
}

// Server converts the settings to the form that agents use.
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
	// The program may read scripts in its arguments that are absolute paths.
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
