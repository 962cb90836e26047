// Package agentdb is an agent's own SQLite database: tables that the agent makes, rows
// that it writes and asks for, and the record of who changed what.
//
// # Design
//
// A DB is one file of one agent. Every write is one operation of the file's serial writer
// (agentdb/sqlite): it first looks into the call journal _calls, does its work, and stores
// (run, call key, result) in the same transaction. A call that is repeated after a crash
// therefore finds its own result and changes nothing; results always pass through their
// JSON, so a replayed one equals the first.
//
// A write is refused with *Error when its arguments are at fault, and then nothing of it
// was written. Any other error means that the file or the host is broken.
//
// Import reads the whole file (64 MiB at most, 256 MiB for an owner) before it needs the
// writer; agentdb/tabular reads the formats. Rows that do not fit are left out, counted and
// reported; a caller who wants all rows or none can fail on rows_skipped, while a refusal could
// not be overruled. If more than half of a file does not fit, it was misread, and is refused as
// a whole.
//
// Export writes texts as they are, because an export that changes =1 into '=1 would import
// as another row. For CSV there is a warning; a workbook marks them as texts.
//
// Query runs on connections that cannot write. It is checked twice: a scan of the text gives
// good advice, and SQLite's authorizer is the boundary. The statement is wrapped in a
// materialized common table expression, because the driver can interrupt only a statement's
// first step: all the work happens there, under the deadline. A query is asked in one read transaction,
// which begins with the version of the schema; connections belong to one version, with the views in front
// of the tables, the names that the authorizer allows and the statements that they have compiled. What
// tables are like is kept for writes in the same way (tableToWrite).
//
// Writes run in one of two ways. Inserts, upserts and imports into a plain table (no code of
// the agent's on it: triggers, checks, cascades, expressions) share the group commit of the
// host's connection and log one row per chunk. All else runs confined: alone, on a second
// connection with an authorizer, limits and a deadline, where SQLite's pre-update hook
// records each row, whoever changes it. A write finds out by itself that it has to be
// confined and starts over. Change describes the changelog; Steps and Reverse turn its rows
// into steps, Apply does them.
//
// Undo reverses a run's entries, the newest first: a chunk whose rows are as they were written
// by a statement or two, and otherwise row by row, each of which has to be as the run left it.
// Tables and columns are followed through later renames.
//
// The memory of SQLite is bounded for the process (agentdb/sqlite), because SQLite bounds a
// value and not how many there are at once. What it sorts goes to temporary files, which a
// statement has as long as its deadline.
//
// Migration files and schema.sql beside the database are written after the commit, from the
// table _migrations, and again at the next opening if a crash came between.
//
// Tables carry the host columns _created_at, _updated_at and _deleted_at. Queries see live
// rows only, by means of temporary views that hide the tables of the same name.
//
// SQLite has no checksums, so the size and checksum of a file are stored when it is closed, and
// compared when it is opened. A file that is damaged, lost or was changed by another program is
// quarantined and left as it is; its owner restores a backup, accepts it, or starts with an
// empty one, and the replaced file is kept. Backup copies a snapshot page by page, which needs
// half the time of VACUUM INTO and does not stop other writers.
//
// A Pool opens files when they are first asked for and keeps the most recently used open.
//
// # Size
//
// The package has more than 40 files and 30 exported names because each write needs the journal,
// the changelog, the quota and the quarantine in one transaction of one DB; its files are
// grouped by prefix instead: changelog_, pool_, sql_, import_, table_, authorizer_. Most of the
// names are the arguments and results of one method each.
package agentdb
