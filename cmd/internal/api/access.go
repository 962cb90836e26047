package api

import "encoding/json"

// LoginRequest requests a login link for a browser.
type LoginRequest struct {
	Path string `json:"path,omitempty"` // page to open after the login; default: the first page
}

// Login is a login link. It works once.
type Login struct {
	URL       string `json:"url"`
	ExpiresAt Time   `json:"expires_at"`
}

// Access describes the access to the pages: their address, the token file and the sessions.
type Access struct {
	URL       string    `json:"url"`
	TokenFile string    `json:"token_file"` // file with the token that programs send as Authorization: Bearer
	Sessions  []Session `json:"sessions"`
}

// Session is a logged-in browser.
type Session struct {
	ID        string `json:"id"`
	CreatedAt Time   `json:"created_at"`
	ExpiresAt Time   `json:"expires_at"`
	UsedAt    Time   `json:"used_at"` // precise to the hour
	Agent     string `json:"agent"`   // User-Agent header
}

// Webhook is a webhook of a job.
type Webhook struct {
	Job     string `json:"job"`
	Path    string `json:"path"`
	URL     string `json:"url"` // empty if the daemon does not listen on a network address
	Scheme  string `json:"scheme"`
	MaxBody int64  `json:"max_body"` // bytes
	Enabled bool   `json:"enabled"`
	Refuses string `json:"refuses"` // reason why requests are rejected now; empty if they are accepted

	LastRun     string `json:"last_run"` // last run started by the webhook; empty before the first
	LastAt      Time   `json:"last_at"`
	LastOutcome string `json:"last_outcome"` // empty until that run has ended
}

// MCPServer is a configured MCP server.
type MCPServer struct {
	Name    string   `json:"name"`
	Where   string   `json:"where"` // program or URL
	Agents  []string `json:"agents"`
	Says    string   `json:"says"`    // name reported by the server
	SeenAt  Time     `json:"seen_at"` // time its tools were last listed
	SignIn  string   `json:"sign_in"` // authorized or unauthorized; empty if no sign-in is needed
	Problem string   `json:"problem"` // why the server is unknown or could not be reached
	// Refused is the reason why this machine's sandbox rejects the server's calls, with a remedy.
	// It is set only if the server was started.
	Refused string    `json:"refused,omitempty"`
	Tools   []MCPTool `json:"tools"`
}

// MCPLook holds the options for inspecting an MCP server.
type MCPLook struct {
	// As is an agent. The server's program gets this agent's directories and network, as in its
	// runs. Optional.
	As string `json:"as,omitempty"`
}

// MCPTool is a tool of an MCP server.
type MCPTool struct {
	Name        string          `json:"name"`   // name for agents
	Tool        string          `json:"tool"`   // name on the server
	Status      string          `json:"status"` // approved, new, changed, gone, unusable or off
	Why         string          `json:"why"`    // why the tool is unusable
	Description string          `json:"description"`
	Schema      json.RawMessage `json:"schema"`      // JSON Schema of the arguments; null if the tool is approved or unusable
	Annotations string          `json:"annotations"` // the server's statements about the tool's effects
	Hash        string          `json:"hash"`        // hash of the server's description of the tool
	Difference  string          `json:"difference"`  // difference from the approved description
}

// MCPApproval approves tools of a server or revokes approvals.
type MCPApproval struct {
	Tools []string `json:"tools,omitempty"` // names on the server; empty means all
	// Shown maps tool names to the hashes shown to the owner. A tool is not approved if its hash
	// has changed since.
	Shown map[string]string `json:"shown,omitempty"`
}

// MCPApproved is the result of an MCPApproval.
type MCPApproved struct {
	Tools    []string          `json:"tools"`
	Unusable map[string]string `json:"unusable"`          // reasons for tools that were not approved
	Refused  string            `json:"refused,omitempty"` // why calls are rejected despite the approval, with a remedy
}

// MCPReply is the result of a sign-in in the browser.
type MCPReply struct {
	Address string `json:"address"` // redirect URL, or the code in it
}

// MCPSignIn is the state of a sign-in at a server.
type MCPSignIn struct {
	Link     string `json:"link"`
	SignedIn bool   `json:"signed_in"`
}
