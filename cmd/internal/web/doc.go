// Package web serves the API of rouse: HTTP /v1 with JSON. Package api has its types and its
// client.
//
// The daemon serves the API on its Unix socket and at its network address. Without a daemon, a
// command uses the same handler in its own process. While it executes a run, it serves the handler
// on the socket.
//
// Server has one small type for each subject: runs, the inbox, pauses, databases, events and so
// on. Each type reads the ledger and calls the parts of the process that it needs, such as
// packages control, why and doctor.
package web
