// Package daemon connects all parts of rouse for one home. The daemon uses it, and commands that
// work without a daemon.
//
// Open locks the home, opens the ledger and creates the parts. Serve runs the parts until its
// context ends. Then the triggers stop first, and running attempts are drained. The configuration
// and its plan are one plan.Setup behind one pointer, which a reload replaces. A started run keeps
// its setup.
//
// The parts handle requests themselves, through package web. This package only defines the order
// in which parts start and stop, and the sockets.
package daemon
