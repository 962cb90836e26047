// Package agentdb is an agent's own SQLite database: tables that the agent makes, rows
// that it writes and asks for, and the record of who changed what.
//
// # Design
//
// A DB is one file of one agent. Every write is one operation of the file's serial writer
// (agentdb/sqlite): it looks into the call journal _calls first, does its work, and stores
// (run, call key, result) in the same transaction. A call that is repeated after a crash
// therefore finds its own result and changes nothing; results always pass through their
// JSON, so a replayed one equals the first.
//
// A write is refused with *Error when its arguments are at fault, and then nothing of it
// was written. Any other error means that the file or the host is broken.
//
// Import reads the whole file (64 MiB at most) before it takes the writer, and refuses it
// as a whole when a row does not fit: a half-imported statement is worse than none. Types
// of a new table are inferred from every row, not from a sample, and only where nothing is
// lost: "007", "+49 30" and 20-digit numbers stay text.
//
// Query runs on connections that cannot write. Two gates stand before the file: a scan of
// the text, which gives good advice, and SQLite's authorizer, which is the boundary. The
// statement is wrapped in a materialized common table expression, because the driver can
// interrupt only a statement's first step: all the work happens there, under the deadline.
//
// Tables carry the host columns _created_at, _updated_at and _deleted_at. Queries see live
// rows only, by way of temporary views that hide the tables of the same name.
//
// A Pool opens files when they are first asked for and keeps the most recently used open.
package agentdb
