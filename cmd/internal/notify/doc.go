// Package notify delivers the outbox: what runs have to tell their owner.
//
// # Design
//
// A notice is a row that was committed with what it tells of; delivering it is somebody
// else's trouble, so no run fails or waits for it. One loop sleeps until the ledger
// changes or a retry is due. A channel that fails is tried again with growing pauses, a
// bounded number of times; a channel that cannot work here at all (no desktop session)
// keeps its notices pending without using their tries up, and `rouse doctor` says so.
package notify
