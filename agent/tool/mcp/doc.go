// Package mcp gives agents the tools of servers that speak the Model Context Protocol.
//
// # Design
//
// A server is not trusted: its tool definitions and results are data. The owner of a server
// approves each tool definition (see Book). Models see only approved definitions, which are read
// from the book without starting the server. The first call of a run starts the server and lists
// its tools (see Sessions). A tool that differs from its approved definition is refused until the
// owner reviews it. The server is stopped when the run ends.
//
// A server program is sandboxed like the programs of its agent. It does not see the agent's folders
// unless the owner allows it. Requests to a server with a URL have the same network checks as
// web_fetch and go to that URL only. Requests from the server (for a completion, for a person's
// answer, for folders) are declined and recorded. Each frame, list, schema and result has a size
// limit, and each wait has a timeout.
//
// The effects that a server declares in annotations are shown to its owner but not trusted. A call
// counts as having an effect outside the host unless the owner declares the tool read-only. Its
// results are untrusted content.
package mcp
