// Package replay reads and writes recordings of what a model was asked and answered, and is a
// provider that answers from one.
//
// # Design
//
// A recording is a file of JSON lines, each complete in itself, so that a file that was cut off
// by a crash can be read up to there. docs/guides/recordings.md describes it. Most of a request is in the
// one before it, so a line holds only what is new; a reader gets whole requests.
//
// Provider has no state: the request holds the transcript, and the answer that comes next is the
// one after the last answer in it. So one provider serves many runs at the same time, and a run
// that continues after a restart. An answer that was recorded with its request is given only to
// the same request, and Compare says what differs; one that somebody wrote manually, without a
// request, is given in its turn.
//
// What was recorded of a run beside its model (attempts, steps, calls) is in the same file
// for replaying the whole run; the provider ignores it.
package replay
