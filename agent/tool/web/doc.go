// Package web provides web_fetch, which sends HTTP requests to hosts that an agent's owner has
// granted.
//
// # Design
//
// Each URL has one canonical form (url.go), and grants are compared only with that form (grant.go).
// Different spellings of a URL therefore cannot bypass a grant. The address behind a name is
// checked when the connection is made (dial.go). DNS rebinding therefore cannot lead to a private
// address. This package follows redirects itself and checks each one against the grants (fetch.go).
//
// A call contains placeholders instead of secrets. Secrets are filled in after all checks, and only
// for the host they are meant for. They are never filled into a URL that a server supplied
// (secret.go).
//
// Responses become text: HTML is converted to Markdown, and long responses are read page by page
// (body.go).
package web
