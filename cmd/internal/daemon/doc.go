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
// Daemon implements the interface of the API (cmd/internal/web) with the parts that it embeds: control.Service answers
// requests about jobs and runs, why.Explainer explains them, and doctor.Checker checks the home. What remains here is
// about the process: status, reload, nodes, backups of the home, access over the network.
package daemon
