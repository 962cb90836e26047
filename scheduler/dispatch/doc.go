// Package dispatch turns queued runs into finished ones.
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
// While the loop rests, it has looked at all that is queued, has lanes left, and nothing was written
// since. A run that is accepted through the dispatcher then (Enqueue, RecordDue) would be the next to
// start: it gets its lanes before its commit, and its attempt with it. At any other time, and where
// something would keep it from starting, it is queued, and read after those before it.
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
