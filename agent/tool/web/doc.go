// Package web lets an agent ask servers that its owner granted: one tool, web_fetch.
//
// # Design
//
// A URL has one canonical form (host.go), and grants are compared with that form alone
// (grant.go): whatever spelling a model or a redirect uses, it is the same host or another one.
// What a name leads to is looked at when the connection is made, not before (guard.go): a name
// that leads inwards is refused however its server answers, and however often it changes its
// mind. Redirects are followed here and not by net/http, so that each is held to the grants as
// the first address is (fetch.go).
//
// Secrets stand in a call as placeholders. They are put in after everything was decided, for
// the one host that each may go to, and never into an address that a server gave (secret.go).
//
// What came is text: HTML becomes Markdown, and a long answer is read page by page (body.go).
package web
