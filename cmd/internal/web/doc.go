// Package web serves the one protocol of rouse: HTTP /v1 with JSON (cmd/internal/api has its types
// and its client).
//
// The daemon serves it on its Unix socket and at its network address. A command that finds no daemon
// mounts the same handler in its own process, and serves it on the socket while it executes a run.
//
// Server has one small type for each subject: runs, the inbox, pauses, databases, events and so on.
// Each reads the ledger, and asks the parts of the process that it needs: cmd/internal/control acts,
// cmd/internal/why explains, cmd/internal/doctor checks.
package web
