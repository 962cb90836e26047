// Package dispatch starts queued runs, executes them and records how they end.
//
// # Parts
//
// The Dispatcher decides which runs start. It uses these parts:
//
//   - backlog and FairQueue hold the queued runs.
//   - nodes chooses the node of a run.
//   - holds finds the obstacles that keep a run from starting.
//   - attempts tracks the attempts in this process and stops them.
//   - recorder executes an attempt and records how its run ends.
//
// # Design
//
// One loop makes all decisions. It reads claimable runs from the ledger in the order of their
// acceptance. If a run finds its lanes free (daemon, agent, job), the loop starts an attempt and
// passes it to the Executor in a goroutine. Waiting runs are rows, not goroutines. The loop keeps
// the ids of waiting runs in memory, so that it does not read a long or blocked queue over and
// over. It sleeps until the ledger changes, an attempt ends, or the earliest retry is due. Only the
// nodes of a shared ledger poll.
//
// A trigger commits a queued run to the ledger. The change wakes the loop, which starts the run in
// a second transaction. If a process ends between the two, the run stays queued, and the next
// process starts it.
//
// The end of an attempt decides how its run continues. A failed attempt may be tried again. The
// time of the next try is in the ledger and survives a restart. An interrupted run continues in a
// new attempt, at most three times in addition to the retries. Attempts of a dead process are
// interrupted before any run starts. The attempt's number fences every result: the result of an
// outdated attempt changes nothing.
//
// The Executor knows the configuration. The dispatcher asks it for the policy of a job, the
// obstacles of a run, and the notices of its end.
package dispatch
