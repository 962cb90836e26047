// Package scheduler turns time into queued runs.
//
// # Design
//
// The Timetable is a heap with the next nominal instant of every job and every planned wake.
// It has no clock and no database: the Scheduler, or a simulation, gives it the time and
// records what it decides. There is one timer, which is set to the head of the heap, but to
// thirty seconds at most. Each time it fires, the Scheduler compares the wall clock with the
// time that has passed, and so notices that the machine slept or that the clock was set.
//
// When the timer fires, every schedule that is due reports its instants since its watermark,
// with the decision of package schedule, and all of them become rows in one transaction of
// the ledger, which also advances the watermarks. Recording an instant twice changes nothing,
// so a restart, a backward clock, or a timer that fires once too often starts nothing twice.
package scheduler
