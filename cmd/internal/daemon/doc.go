// Package daemon wires all parts of rouse together on one home, for the daemon and for a command that
// works without one.
//
// # Design
//
// Open locks the home, opens the ledger and gives each part what it needs. Serve runs the parts until
// its context ends: then the triggers stop first, and running attempts are drained. The
// configuration and its plan (cmd/internal/plan) are one plan.Setup behind one pointer, which a reload
// replaces as a whole: a run that has started keeps the setup that it started with.
//
// Daemon implements the interfaces of the API (cmd/internal/web), in a file for each subject.
//
// # Size
//
// One file for each subject of the API, and for each part made from the configuration: all of them read the current Setup.
package daemon
