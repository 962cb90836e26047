// Package web lets an agent ask servers that its owner granted: one tool, web_fetch.
//
// # Design
//
// A URL has one canonical form (url.go), and grants are compared with that form alone
// (grant.go): whatever spelling a model or a redirect uses, it is the same host or another one.
// The address behind a name is checked when the connection is made, not before (dial.go): a name
// that resolves to a private address is refused whatever the DNS said a moment earlier. Redirects
// are followed here and not by net/http, so that each is checked against the grants like the first
// address (fetch.go).
//
// Secrets are placeholders in a call. They are filled in after everything was decided, only for the
// host that each may go to, and never into an address that a server gave (secret.go).
//
// An answer becomes text: HTML is converted to Markdown, and a long answer is read page by page
// (body.go).
package web
