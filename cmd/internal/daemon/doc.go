// Package daemon is all parts of rouse wired together on one home, as the daemon has them and as a
// command has them that works without one.
//
// # Design
//
// Open takes the home's lock, opens the ledger and gives each part what it needs; Serve runs them
// until it is told to stop, triggers first to end and running attempts drained. What the parts are
// given comes from the configuration by way of a Plan. Both are one Setup behind one pointer, which
// a reload replaces as a whole: what has begun keeps the one it began with.
//
// Daemon answers what the API (cmd/internal/web) asks beside the ledger: a file for each subject.
package daemon
