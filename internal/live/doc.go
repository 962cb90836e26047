// Package live shows what runs are doing at this moment, before it is on record.
//
// # Design
//
// A Board holds one state for each run that is on in this process: the answer that its model is writing, and how much of
// one, or of the output of a program, has arrived. It holds states and no events, so that nothing queues up: whoever looks
// sees the newest state and compares it with what they saw last. A slow reader sees fewer states, and a run never waits for
// one. Nothing is written to a disk: the ledger has the answer when it is whole, and what a crash takes with it here is
// asked for again by the next attempt.
//
// What is held is bounded, and what is shown has no secrets: a Cleaner holds back an end in which one may have begun.
package live
