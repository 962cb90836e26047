// Package scheduler turns time into queued runs.
//
// # Design
//
// The Timetable is a heap with the next nominal instant of every job and every planned wake.
// It has no clock and no database: the Scheduler, or a simulation, gives it the time and
// records what it decides. robfig/cron is the only timer: it has a single entry, armed for
// the head of the heap, but for thirty seconds at most. So a suspended machine or a stepped
// clock is noticed by comparing the wall clock with the time that has passed, not by a timer
// that was set long ago.
//
// When the timer fires, every schedule that is due reports its instants since its watermark,
// with the decision of package schedule, and all of them become rows in one transaction of
// the ledger, which also advances the watermarks. Recording an instant twice changes nothing,
// so a restart, a backward clock, or a timer that fires once too often starts nothing twice.
package scheduler
