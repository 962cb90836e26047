// Package simulate plays schedules on a simulated clock. The result shows which runs start, are
// skipped or are missed, and why.
//
// # Design
//
// The decisions are made by the daemon's own code. The Timetable determines due instants,
// ledger.DecideDue and wake.Decide decide about them, and the FairQueue assigns lanes. Only
// the time, the runtime of runs and outages of the daemon are simulated. A simulation uses no model
// and no database and has no side effects.
//
// Each run takes its assumed runtime and succeeds. A run that is interrupted by an outage continues
// afterwards for the rest of its runtime, unless the policy of its job forbids it.
package simulate
