// Package scheduler turns time into queued runs.
//
// # Design
//
// A heap holds the next nominal instant of every schedule. robfig/cron is the one
// wake-up: a single entry whose Schedule answers "at the head of the heap, and at least
// every thirty seconds", so a suspended machine or a stepped clock is noticed by looking
// at the wall clock again, not by a timer that was set long ago.
//
// At a wake-up every schedule that is due reports its instants since its watermark, with
// the decision of package schedule, and all of them become rows in one transaction of the
// ledger, which also advances the watermarks. Reporting an instant twice changes nothing,
// so a restart, a backward clock, or a wake-up too many fires nothing twice.
package scheduler
