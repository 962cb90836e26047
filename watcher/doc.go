// Package watcher turns files that arrive into queued runs, exactly once for each content.
//
// # Design
//
// An event is a hint; the truth is a scan compared with the ledger: scan minus claims is
// work.
//
//	events ─► listen ─► a set of paths ─► folder: settle ─► hash ─► claim ─► ledger.Enqueue
//	                    scan ───────────────────┘
//
// There is one fsnotify watcher. Its loop (listen) only adds paths to the set of each
// folder they belong to: whoever does more there makes the kernel's queue overflow. Each
// watch is a folder with a goroutine of its own, so that one that hangs (a network file
// system) holds up nobody else.
//
// A file is ready when its size, modification time and identity stayed the same for the
// settle window, and still are after its content was hashed; the settler decides that
// without a clock of its own, with one heap of deadlines and not a timer for each file. Then
// its claim and its run are committed together by the ledger, which knows whether the same
// bytes were taken before. What waits is rows of the ledger, not memory.
//
// In a batch the files that are ready wait for each other: a run of many files has all their
// claims in its transaction. A folder that converges has no claims: its fingerprint, which
// reads stamps only, is compared with the one from before its last run, and that is written
// in the transaction of the run. See loop for its states.
//
// A watch that leaves what was there before its job keeps a list of that, made at its first look:
// times alone would not tell, for a folder that is moved in brings files that are older.
//
// Scans (at the start, every five minutes, after a lost event, when a folder returns) feed
// the same settler. A folder is armed before it is read, so nothing falls between; where
// the system cannot arm it, it is scanned every two seconds, and its status says so.
//
// Files are read, moved and deleted by way of a folder that is held open (spot), so that no
// link which somebody puts in the way leads out of it.
//
// What happens to a file after its run is an intent in the ledger, written with the
// outcome; the watcher carries it out, again after a crash, without losing the file.
package watcher
