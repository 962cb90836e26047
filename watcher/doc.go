// Package watcher turns files that arrive into queued runs, exactly once for each content.
//
// # Parts
//
// The type folder is a watch at work. Its parts: place (where it is, and what is selected there), hints (what
// events tell), candidates (files on their way to a run), loop (a folder that converges), failedMoves,
// triggerQueue, and report (what its status shows). Package after does what happens to a file after its run.
//
// # Design
//
// An event is a hint; the truth is a scan compared with the ledger: scan minus claims is
// work.
//
//	events ─► readEvents ─► a set of paths ─► folder: debounce ─► hash ─► claim ─► ledger.Enqueue
//	                        scan ───────────────────┘
//
// There is one fsnotify watcher. Its loop (readEvents) only adds paths to the set of each
// folder they belong to: doing more there would let the kernel's queue overflow. Each
// watch is a folder with a goroutine of its own, so that one that hangs (a network file
// system) holds up nobody else.
//
// A file is ready when its size, modification time and identity stayed the same for the
// settle window, and still are after its content was hashed. Package settle decides that
// without a clock of its own, with one heap of deadlines instead of a timer for each file.
// Then the ledger commits the file's claim and its run together; it knows whether the same
// bytes were claimed before. What is queued is rows of the ledger, not memory.
//
// In a batch the files that are ready wait for each other: a run of many files has all their
// claims in its transaction. A folder that converges has no claims: its fingerprint, which
// reads stamps only, is compared with the one from before its last run, and that is written
// in the transaction of the run. See the type convergence for its states.
//
// A watch that ignores what was there before its job keeps a list of that, made by its first
// scan: times alone would not do, because a folder that is moved in brings older files.
//
// Scans (at the start, every five minutes, after a lost event, when a folder returns) feed
// the same debouncer. A folder is subscribed to before it is read, so nothing falls between;
// where the system gives no events, it is scanned every two seconds, and its status says so.
//
// Folders and files are read, and files moved and deleted, through a folder that is held open
// (fsys.Handle), so that no link which somebody puts in the way leads out of it. That folder, and those
// that files are moved to, are opened again for each use, and where others could have put a link in their
// place (Watch.Boundary) none is followed: the watch says so, and waits until the folder is one again.
//
// What happens to a file after its run is an intent in the ledger, written with the
// outcome; the watcher carries it out, again after a crash, without losing the file.
package watcher
