// Package ledger is the host's own record: jobs, occurrences, runs, attempts, steps, calls,
// events, the inbox, pauses, wakes, claims of files, watches, the outbox, incidents, digests, artifacts,
// workspaces, and what models cost.
//
// The methods of Ledger change runs, whatever else has to be written in the same transaction. Each other subject has a package below
// this one, and a field of Ledger: Inbox, Workspaces, Events. Its functions that take a store.Tx write the rows of the subject in a
// transaction of the ledger.
//
// # Design
//
// There is one way in for work, Enqueue (RecordDue for schedules), and one way out, Finish.
// What has to be true together is written together: a run with its key and its claim; an
// outcome with its event, its notices and the after-move of its file. Every write of a run
// names the attempt it belongs to, and is refused with ErrFenced when that attempt is not the
// running one any more.
//
// The same SQL runs on SQLite and on PostgreSQL: $1 parameters, instants as integer
// milliseconds UTC (0: none), flags as 0 and 1, JSON as text. Migrations are
// written for SQLite, and toPostgres replaces the types.
// Writes share the group-commit goroutine of package sqlite; reads use a pool.
//
// Money is spent through Reserve and Settle: a call of a model is counted in the sums of its
// day before it is made, so that a process that dies has overspent by one call at most.
//
// Values over 64 KiB are stored once by content in files beside the database and are read back
// transparently.
package ledger
