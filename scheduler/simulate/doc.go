// Package simulate plays schedules on a clock that runs as fast as it can: what would run, be
// skipped or be missed, and why.
//
// # Design
//
// Every decision is made by the daemon's own code: the Timetable says what has come, the
// ledger's Decide and DecideSlot what becomes of it, the FairQueue which run finds a lane. What
// is simulated is what they are asked about: the time, how long a run takes, and when no
// daemon runs. There is no model, no database, and no effect.
//
// A run takes as long as it is assumed to, and succeeds. One that an outage interrupts continues
// after it for the rest of its time, as in the daemon, unless its job says otherwise.
package simulate
