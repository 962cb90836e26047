// Package agentdb is an agent's own SQLite database: its tables, its queries, and the record of
// every change.
//
// # Design
//
// A DB is one file of one agent. Every write is one operation of the file's serial writer
// (internal/storage/sqlite). It looks into the call journal _calls, does its work, and stores (run, call
// key, result) in the same transaction. A call that is repeated after a crash finds its result and
// changes nothing. Results always pass through their JSON, so a repeated one equals the first.
//
// A write returns *Error if its arguments are at fault, and then wrote nothing. Any other error
// means that the file or the host is broken.
//
// Import reads the whole file before it needs the writer; agentdb/tabular reads the formats. Rows
// that do not fit are left out, counted and reported. If more than half of a file does not fit, it
// was misread, and is refused as a whole.
//
// Export writes texts as they are, because an export that changes =1 into '=1 would import as
// another row. A CSV export warns of formulas; a workbook marks them as texts.
//
// Query runs on connections that cannot write. A scan of the text gives good advice; SQLite's
// authorizer is the boundary. Connections belong to one version of the schema, with temporary views
// that hide deleted rows and the tables that the authorizer allows.
//
// Inserts, upserts and imports into a plain table share the group commit of the file's connection
// and log one entry per chunk. A plain table has no code of the agent's: triggers, checks,
// cascades, expressions. All other writes run confined: alone, on a second connection with an
// authorizer, limits and a deadline, where SQLite's pre-update hook records each row. A write that
// has to be confined finds that out by itself and starts over. Change describes the changelog;
// Steps and Reverse turn its entries into steps.
//
// Undo reverses a run's entries, the newest first. Each row has to be as the run left it. Tables
// and columns are followed through later renames.
//
// Migration files and schema.sql beside the database are written after the commit, from the table
// _migrations, and again at the next opening if a crash came between.
//
// SQLite has no checksums, so the size and checksum of a file are stored when it is closed, and
// compared when it is opened. A file that is damaged, lost or changed by another program is
// quarantined and left as it is. Its owner restores a backup, accepts it, or starts with an empty
// one, and the replaced file is kept.
//
// A pool.Pool opens files when they are first asked for and keeps the most recently used open.
package agentdb
