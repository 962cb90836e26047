// Package watcher turns files that arrive into queued runs, exactly once for each content.
//
// # Design
//
// An event is a hint; the truth is a scan compared with the ledger. The event loop only
// adds paths to a set, with the instant at which each may have settled; one heap of
// deadlines, not a timer for each file, says when to look. A file is ready when its size,
// change time and identity stayed the same for the settle window, and still are after its
// content was hashed. Then its claim and its run are committed together by the ledger,
// which knows whether the same bytes were taken before.
//
// Scans (at the start, every five minutes, after a lost event, when a folder returns) put
// what they find into the same set: nothing is found twice, because a claim is for ever.
//
// What happens to a file after its run is an intent in the ledger, written with the
// outcome; the watcher carries it out, again after a crash, without losing the file.
package watcher
