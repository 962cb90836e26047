// Package mcp gives agents the tools of servers of the Model Context Protocol (OSL-33).
//
// # Design
//
// A server is a stranger: what it says of its tools, what it answers, and when, is data. Its owner approves each tool as it stands
// (Book), and that is all that a model is ever told: a run has the tools that are approved, from the book, without anything being
// started. The server is started by the first call of a run (Sessions), asked which tools it has, and a tool that is not what was
// approved is refused until its owner has looked at it. With the run it ends.
//
// A program that serves is confined like the programs of its agent, and sees none of the agent's folders unless its owner says so; a
// server with an address is asked as web_fetch asks, at that address alone. What the protocol lets a server ask for (a completion, an
// answer of a person, folders) is declined, and put on record. Each frame, list, schema and result has a bound, and each wait an end.
//
// Whatever a server says of the effects of a tool (annotations) is shown to its owner and believed by nobody: a call is one with an
// effect beyond the host unless the owner says that it only reads, and what it brings is untrusted.
package mcp
