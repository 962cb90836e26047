// Package replay reads and writes recordings of requests to a model and its answers. Its Provider
// answers from a recording.
//
// # Design
//
// A recording is a file of JSON lines. Each line is complete, so that a file cut off by a crash can
// be read up to that point. docs/guides/recordings.md describes the format. Most of a request
// repeats the previous one, so a line holds only the new part. Readers get whole requests.
//
// Provider has no state. The request holds the transcript, and the next answer is the one after the
// last answer in the transcript. One provider therefore serves many runs at the same time, and runs
// that continue after a restart. An answer that was recorded with its request is given only to the
// same request, and Compare reports the differences. An answer written by hand has no request and
// is given in order.
//
// The file also holds the attempts, steps and calls of the run, for replaying the whole run. The
// provider ignores them.
package replay
