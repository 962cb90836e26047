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
// Import reads the whole file (64 MiB at most, 256 MiB for an owner) before it takes the
// writer. Types of a new table are inferred from every row, not from a sample, and only
// where nothing is lost: "007", "+49 30", "12,50" and 20-digit numbers stay text. Rows that
// do not fit are left out, counted and reported; a caller who wants all rows or none can fail
// on rows_skipped, while a refusal could not be overruled. A file of
// which more than half does not fit was misread, and is refused as a whole.
//
// Spreadsheets are read and written with the standard library alone. Libraries build the
// whole sheet in memory, as large as its attributes say, and leave out cells that do not
// say where they are; here they are a stream, and bounded.
//
// Export writes texts as they are, because an export that changes =1 into '=1 would import
// as another row. CSV is warned of; a workbook marks them as texts.
//
// Query runs on connections that cannot write. Two gates stand before the file: a scan of
// the text, which gives good advice, and SQLite's authorizer, which is the boundary. The
// statement is wrapped in a materialized common table expression, because the driver can
// interrupt only a statement's first step: all the work happens there, under the deadline.
//
// Writes run in one of two ways. Inserts, upserts and imports into a plain table (no code of
// the agent's on it: triggers, checks, cascades, expressions) share the group commit of the
// host's connection and log one row per chunk. All else runs confined: alone, on a second
// connection with an authorizer, limits and a deadline, where SQLite's pre-update hook
// records each row, whoever changes it. A write finds out by itself that it has to be
// confined and begins again. Change describes the changelog; Steps and Reverse turn its rows
// into steps, Apply does them.
//
// Undo takes a run's entries back, the newest first: a chunk whose rows are as they were
// written by a statement or two, and else each row, which has to be as the run left it.
// Tables and columns are followed through the renames that came later.
//
// The memory of SQLite is bounded for the process (agentdb/sqlite), because SQLite bounds a
// value and not how many there are at once. What it sorts goes to temporary files, which a
// statement has as long as its deadline.
//
// Migration files and schema.sql beside the database are written after the commit, from the
// table _migrations, and again at the next opening if a crash came between.
//
// Tables carry the host columns _created_at, _updated_at and _deleted_at. Queries see live
// rows only, by way of temporary views that hide the tables of the same name.
//
// SQLite has no checksums, so a file that is closed is sealed with its size and sum, and
// compared when it is opened. One that is damaged, lost or was changed by another program is
// left as it is; its owner restores a backup, accepts it, or begins anew, and what another
// file took the place of is kept. Backup copies a snapshot page by page, which needs half
// the time of VACUUM INTO and lets others write.
//
// A Pool opens files when they are first asked for and keeps the most recently used open.
package agentdb
