package api

import "encoding/json"

// LoginRequest asks for a link that logs a browser in.
type LoginRequest struct {
	Path string `json:"path,omitempty"` // of the page that it leads to; "" is the first
}

// Login is a link that logs a browser in, once.
type Login struct {
	URL       string `json:"url"`
	ExpiresAt Time   `json:"expires_at"`
}

// Access says where the pages are and who is logged in.
type Access struct {
	URL       string    `json:"url"`
	TokenFile string    `json:"token_file"` // that holds what programs send as Authorization: Bearer
	Sessions  []Session `json:"sessions"`
}

// Session is a browser that is logged in.
type Session struct {
	ID        string `json:"id"`
	CreatedAt Time   `json:"created_at"`
	ExpiresAt Time   `json:"expires_at"`
	UsedAt    Time   `json:"used_at"` // to the hour
	Agent     string `json:"agent"`   // what it calls itself
}

// Webhook is one of a job.
type Webhook struct {
	Job     string `json:"job"`
	Path    string `json:"path"`
	URL     string `json:"url"` // "" where nobody listens
	Scheme  string `json:"scheme"`
	MaxBody int64  `json:"max_body"` // bytes
	Enabled bool   `json:"enabled"`
	Refuses string `json:"refuses"` // why it takes nothing now, "" if it does

	LastRun     string `json:"last_run"` // that it started, "" before the first
	LastAt      Time   `json:"last_at"`
	LastOutcome string `json:"last_outcome"` // "" while it has not ended
}

// MCPServer is a server of the Model Context Protocol that agents may have.
type MCPServer struct {
	Name    string   `json:"name"`
	Where   string   `json:"where"` // its program, or its address
	Agents  []string `json:"agents"`
	Says    string   `json:"says"`    // what it calls itself
	SeenAt  Time     `json:"seen_at"` // when it was last asked which tools it has
	SignIn  string   `json:"sign_in"` // authorized, unauthorized; "" where nobody has to
	Problem string   `json:"problem"` // why nothing is known of it, or it could not be asked
	// Refused is why its calls are refused by the sandbox of this machine, with the remedy; only of a server that was started.
	Refused string    `json:"refused,omitempty"`
	Tools   []MCPTool `json:"tools"`
}

// MCPLook says how an MCP server is looked at.
type MCPLook struct {
	// As is an agent whose folders and network the program gets, as in its runs; "": none.
	As string `json:"as,omitempty"`
}

// MCPTool is a tool of such a server.
type MCPTool struct {
	Name        string          `json:"name"`   // as agents call it
	Tool        string          `json:"tool"`   // as the server calls it
	Status      string          `json:"status"` // approved, new, changed, gone, unusable, off
	Why         string          `json:"why"`    // it is unusable
	Description string          `json:"description"`
	Schema      json.RawMessage `json:"schema"`      // of its arguments; null where it is approved, or cannot be used
	Annotations string          `json:"annotations"` // what the server says of its effects
	Hash        string          `json:"hash"`        // of what the server says of it
	Difference  string          `json:"difference"`  // from what was approved
}

// MCPApproval approves tools of a server, or takes their approvals back.
type MCPApproval struct {
	Tools []string          `json:"tools,omitempty"` // by the names of the server; none: all
	Shown map[string]string `json:"shown,omitempty"` // hashes of all tools that the owner was shown, by name; nothing is approved that is not so any more
}

// MCPApproved is what became of it.
type MCPApproved struct {
	Tools    []string          `json:"tools"`
	Unusable map[string]string `json:"unusable"`          // why others were not approved
	Refused  string            `json:"refused,omitempty"` // why calls are refused all the same, with the remedy
}

// MCPReply is what a browser was sent back with from a sign-in.
type MCPReply struct {
	Address string `json:"address"` // that it was sent to, or the code in it
}

// MCPSignIn is where an owner signs in at a server.
type MCPSignIn struct {
	Link     string `json:"link"`
	SignedIn bool   `json:"signed_in"`
}
