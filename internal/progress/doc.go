// Package progress publishes the current activity of runs before it is stored in the ledger.
//
// A Board holds one state per run instead of a queue of events. Slow readers see fewer states, and
// runs never wait for a reader. States are not written to disk: the ledger stores complete
// responses, and after a crash the next attempt requests lost ones again. The size of a state is
// limited, and a Cleaner removes secrets, including an end that may be the beginning of one.
package progress
