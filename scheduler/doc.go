// Package scheduler turns time into queued runs.
//
// # Design
//
// The Timetable is a heap with the next nominal instant of every job and slot. It has no
// clock and no database: the Scheduler, and a simulation, hand it the time and record what
// it decides. robfig/cron is the one wake-up: a single entry that is armed for the head of
// the heap, and for thirty seconds at most, so a suspended machine or a stepped clock is
// noticed by comparing the wall clock with the time that has passed, not by a timer that
// was set long ago.
//
// At a wake-up every schedule that is due reports its instants since its watermark, with
// the decision of package schedule, and all of them become rows in one transaction of the
// ledger, which also advances the watermarks. Reporting an instant twice changes nothing,
// so a restart, a backward clock, or a wake-up too many fires nothing twice.
package scheduler
