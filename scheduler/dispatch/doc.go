// Package dispatch turns queued runs into finished ones.
//
// # Parts
//
// The Dispatcher decides what starts. Its parts: backlog and FairQueue (queued runs), nodes (where a run may
// go), holds (what keeps a run from starting), attempts (those in this process, and how they are stopped), and
// recorder (which executes an attempt and records how its run ends).
//
// # Design
//
// One loop owns all decisions: it reads claimable runs from the ledger in the order of
// their acceptance, gives each that finds a free lane (daemon, agent, job) an attempt, and
// hands it to the Executor in a goroutine. Waiting runs are rows, not goroutines; the ids of
// those that found no lane are kept in memory (FairQueue, backlog), so that neither a long
// queue nor one whose lanes are full is read over and over. The loop sleeps until the ledger
// changes, an attempt ends, or the earliest retry is due; it never polls.
//
// A trigger commits a queued run to the ledger; the change wakes the loop, which starts the run in a
// second transaction. A process that ends between the two leaves a queued run, and the next one
// starts it.
//
// What ended an attempt decides what follows: a failed one may be tried again (the time
// of the next try is in the ledger, so it survives a restart), an interrupted one goes on
// in a new attempt, at most three times beside the retries. Attempts that a dead process
// left running are interrupted before anything starts. Every result is fenced by the
// attempt's number: a late writer changes nothing.
//
// What is configured for a run is the Executor's to know: the dispatcher asks it for the
// policy of a job, whether a run is blocked, and for the notices of its end.
package dispatch
