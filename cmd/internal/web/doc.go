// Package web serves the one protocol of rouse: HTTP /v1 with JSON (cmd/internal/api has its types
// and its client).
//
// The daemon serves it on its Unix socket; a command that finds no daemon mounts the same handler in
// its own process, and serves it on the socket while it executes a run. The ledger is read here directly. For what needs the wiring of the whole program
// (starting a job, undoing a run, planning a wake) each area of the API has a small interface next to
// its handlers; cmd/internal/daemon implements them.
package web
