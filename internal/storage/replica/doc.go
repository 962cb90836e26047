// Package replica continuously copies the transactions of an SQLite database to another place while
// the database is in use, and restores any of the copied states.
//
// It writes Litestream's LTX files and uses Litestream's levels, compaction and restore plan, but
// not Litestream's DB. That DB reads the log through a descriptor of the database file, and closing
// the descriptor releases the process's locks on open connections. It also writes its own tables,
// and starts over after a log is removed, which happens whenever an agent's database is closed.
package replica
