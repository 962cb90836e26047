// Package replica ships what is written to an SQLite database to another place while it is used, and brings any of its states back
// from there.
//
// # Design
//
// A Follower reads the transactions of one database from its write-ahead log, and writes them as LTX files by a ReplicaClient of
// Litestream. It knows neither files nor buckets: Client is such a client on a Store. Litestream's own DB is not used: it reads the log
// through a descriptor of the database file, and closing one takes all locks of the process away from the connections that are open;
// it writes tables of its own; and it starts over whenever a log was removed, which happens here each time an agent's database is closed.
// Its levels, compaction and plan of a restore are used as they are.
//
// As long as something is not shipped, the log is the buffer: a read transaction (the keep) keeps SQLite from starting it over. Once all of it
// is shipped, the log is brought into the file in the writer's turn. A log that outgrows maxLog is let go, and the next thing that
// is shipped is the whole database. The same happens whenever it is not certain that what the log holds continues what was shipped:
// after another process wrote to the file, when another file took its place, when a frame that was shipped is not there any more. So
// states of different files never mix.
//
// A Position in the log is certain by the salts of the log, the running checksum of its frames, and, for a file that was closed and has
// no log, by the size and the checksum of its clean-shutdown marker.
package replica
