// Package replay keeps what a model was asked and answered, and is a provider that answers
// from it.
//
// # Design
//
// A recording is a file of JSON lines, each of which stands for itself, so that one that a
// crash cut off is whole up to there. docs/recordings.md describes it. Most of a request is
// in the one before it, so a line holds what is new; a reader gets whole requests.
//
// Provider has no state: which answer comes next is told by the transcript that it is asked
// with, whose last answer is found in the recording. So one provider serves many runs at
// once, and a run that goes on after a restart. An answer that was recorded with its
// request is given only to the same request, and Compare says what is not the same; one
// that somebody wrote by hand, without a request, is given in its turn.
//
// What was recorded of a run beside its model (attempts, steps, calls) is in the same file
// for those who play the whole run again; the provider does not look at it.
package replay
