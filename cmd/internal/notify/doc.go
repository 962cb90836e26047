// Package notify delivers the outbox: the notices of runs to their owner.
//
// # Design
//
// A notice is a row that was committed together with what it reports. It is delivered separately, so
// no run fails or waits because of it. One loop sleeps until the ledger changes or a retry is due,
// and hands each channel its own, which that sends beside the others: one that hangs holds up nobody. A
// channel that fails is tried again with growing pauses, a limited number of times; a channel that
// cannot work here at all (no desktop session) keeps its notices pending without using up their tries,
// for a week, and `rouse doctor` says so.
//
// A digest is a notice, too. The ledger keeps up to when those of a channel have told, and moves that in the
// transaction of the notice: whatever happens in between, each moment is in one digest.
package notify
