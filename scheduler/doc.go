// Package scheduler queues runs when they are due.
//
// # Design
//
// A Timetable is a heap with the next nominal instant of every job and the time of every planned
// wake. It has no clock and no database. The Scheduler, or a simulation, passes the time to it and
// records its decisions. A single timer is set to the head of the heap, or to 30 seconds if that is
// earlier. Whenever the timer fires, the Scheduler compares the wall clock with the monotonic
// clock. It thereby detects a suspended machine and a clock that was set.
//
// When the timer fires, package schedule decides about the instants of each due schedule since its
// watermark. The Scheduler records all of them in one ledger transaction, which also advances the
// watermarks. Recording an instant is idempotent. A restart, a clock that is set back, or a
// spurious timer therefore never starts a run twice.
package scheduler
