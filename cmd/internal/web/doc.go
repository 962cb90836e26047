// Package web is the one protocol of rouse: HTTP /v1 with JSON.
//
// The daemon serves it on its Unix socket; a command that finds no daemon mounts the
// same handler in its own process (InProcess), so that every verb has one code path.
// The ledger is read here directly; what needs the wiring of the whole program (firing
// a job, calling a tool) is asked of the Engine that cmd/rouse provides. The types of
// this package are what `--json` prints: ids are strings, times RFC 3339 UTC with
// milliseconds, a time that has not come is absent.
package web
