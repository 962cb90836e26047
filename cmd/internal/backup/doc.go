// Package backup copies a whole home, checks such a copy, and puts a home back from one.
//
// # Design
//
// A backup is a folder, or an archive of the same: manifest.json, which names all else with size and SHA-256 and is written
// last; home/, what the home held; config/, configurations that lay elsewhere. It has its name only once all of it was read
// again. What is cut off has another name, which the next backup to that place removes.
//
// What belongs together is of one instant: the snapshots of all databases are taken by whoever holds the home, while the ledger
// takes no writes (ledger.Ledger.Snapshot). What is read after that (large values, recordings, agents' files) is either named by
// its content, and kept until the backup is done, or stands for itself.
//
// Nothing in the home is followed: agents make names in their workdirs. A backup that is read is a stranger's: its names, kinds
// and sizes are judged before anything is written (extract.go).
package backup
