// Package agentdb stores an agent's data in its own SQLite database and logs every change.
//
// # Design
//
// A DB is one file of one agent. Every write is one operation of the file's serial writer
// (internal/storage/sqlite). The write looks up the call journal _calls, does its work, and
// stores (run, call key, result) in the same transaction. A call that is repeated after a crash
// returns the stored result and changes nothing. Results always pass through JSON, so that a
// repeated result equals the first one.
//
// A write returns *Error if its arguments are at fault; it has then written no rows. Any other
// error means that the file or the host is broken.
//
// Import reads the whole file before it needs the writer. The package agentdb/tabular reads the
// formats. Rows that do not fit are skipped, counted and reported. If more than half of the rows
// do not fit, the file was probably misread, and Import rejects it.
//
// Export writes texts unchanged: an export that changes =1 into '=1 would import as a different
// row. A CSV export warns about formulas. A workbook stores them as text.
//
// Query runs on connections that cannot write. A scan of the SQL text gives helpful messages, but
// SQLite's authorizer enforces the limits. Connections belong to one version of the schema.
// Temporary views hide deleted rows, and the authorizer allows a fixed set of tables.
//
// Inserts, upserts and imports into a plain table share the group commit of the file's connection
// and log one entry per chunk. A plain table has no code of the agent: no triggers, checks,
// cascades or expressions. All other writes run confined: alone, on a second connection with an
// authorizer, limits and a deadline. There SQLite's pre-update hook records each row. A write
// that turns out to need confinement starts over.
//
// Undo reverses a run's changelog entries, the newest first. Each row must be unchanged since the
// run. Undo follows later renames of tables and columns.
//
// Migration files and schema.sql beside the database are written from the table _migrations after
// the commit. If the process crashes in between, the next Open writes them.
//
// SQLite has no checksums. Therefore the size and checksum of a file are stored when it is
// closed, and compared when it is opened. A file that is damaged, lost or changed by another
// program is quarantined and left unchanged. Its owner restores a backup, accepts the file, or
// starts with an empty one. The replaced file is kept.
//
// A pool.Pool opens files on first use and keeps the most recently used files open.
package agentdb
