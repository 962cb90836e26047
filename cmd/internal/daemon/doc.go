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
// The parts answer requests themselves: control.Service acts on jobs and runs, why.Explainer explains them, doctor.Checker checks
// the home, status.Reporter reports on the process, reload.Reloader reads the configuration again. Daemon hands them to
// cmd/internal/web. What remains here is the order in which parts start and stop, and the sockets.
package daemon
