// Package watcher queues runs for files that arrive, exactly once for each content.
//
// # Parts
//
// A folder is an active watch. It uses these parts:
//
//   - place is the location of the folder and its selection of files.
//   - hints collects the events.
//   - candidates holds the files on their way to a run.
//   - loop handles a folder in mode converge.
//   - failedMoves records the failed moves.
//   - triggerQueue holds the manual triggers.
//   - report holds the status.
//
// Package after handles a file after its run.
//
// # Design
//
// Events are only hints. A scan is compared with the claims in the ledger, and files without a
// claim need a run.
//
//	events ─► readEvents ─► a set of paths ─► folder: debounce ─► hash ─► claim ─► ledger.Enqueue
//	                        scan ───────────────────┘
//
// There is one fsnotify watcher. Its loop (readEvents) only adds paths to the set of each folder
// they belong to. If it did more, the kernel's queue could overflow. Each watch is a folder with
// its own goroutine, so that a hanging network file system does not block the others.
//
// A file is ready if its size, modification time and identity did not change during the settle
// window and while it was hashed. Package settle decides that without a clock of its own, with one
// heap of deadlines instead of a timer for each file. Then the ledger commits the file's claim
// together with its run. It knows whether the same bytes were claimed before. Queued files are rows
// of the ledger and are not kept in memory.
//
// In a batch the ready files wait for each other. A run of many files commits all their claims in
// its transaction. A folder in mode converge has no claims. Its fingerprint is computed from stamps
// only and compared with the fingerprint before its last run. The new fingerprint is written in the
// transaction of the run. See the type convergence for its states.
//
// A watch that ignores files from before its job records them on its first scan. Times alone are
// not enough, because a folder that is moved in contains older files.
//
// Scans use the same debouncer. They run at the start, every five minutes, after a lost event, and
// when a folder returns. A folder is subscribed to before it is read, so that no event is missed.
// If the system delivers no events, the folder is scanned every two seconds, and its status reports
// this.
//
// Files are read, moved and deleted relative to an open folder (fsys.Handle), so that a link cannot
// lead out of it. That folder and the destination folders are opened again for each use. In places
// where others could have put a link (Watch.Boundary), no link is followed. The watch then reports
// the link and waits until the link is a folder again.
//
// The action after a run is an intent in the ledger, which is written with the outcome. The watcher
// carries it out, again after a crash, without losing the file.
package watcher
