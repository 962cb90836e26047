// Package ledger records the jobs, runs and attempts of rouse, and everything that belongs to them:
// steps, calls, events, inbox items, pauses, wakes, file claims, artifacts, workspaces and model
// costs.
//
// The methods of Ledger change runs, together with all rows that the same transaction must write.
// Every other subject has its own package below this one and a field in Ledger, such as Inbox or
// Events. Functions of those packages that take a store.Tx write in a transaction of the caller.
//
// # Design
//
// Runs are created by Enqueue, and by RecordDue for schedules. They end in Finish. Rows that must
// be consistent are written in one transaction: a run with its key and its claim, or an outcome
// with its event, its notices and the move of its file. Every write for a run names the attempt
// that makes it. It returns ErrFenced if another attempt has started.
//
// SQLite and PostgreSQL run the same SQL: $1 parameters, times as milliseconds UTC (0 for none),
// flags as 0 and 1, JSON as text. Migrations are written for SQLite, and toPostgres replaces the
// types. Writes share the group-commit goroutine of package sqlite. Reads use a pool.
//
// Budget.Reserve adds the maximum cost of a model call to the sums of its day and month before the
// call is made. Budget.Settle replaces it with the real cost. A process that is killed overspends
// by at most one call.
//
// Values over 64 KiB are stored by their content hash outside the database: in files beside it, or
// in a bucket. Readers get them like any other value.
package ledger
