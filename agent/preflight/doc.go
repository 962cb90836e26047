// Package preflight checks whether the folders, programs and other resources of a run are
// available. It only reads, and does not follow links below a folder that agents can write to.
//
// # Design
//
// Thousands of jobs may need the same folder, and each pass over the queue asks for all of them. So
// a finding belongs to its source, not to a job, and is cached. A good finding is valid for one
// second, so that a run does not start on stale data. A problem stays valid until the next call of
// Again, so that one check serves all blocked runs. The rest between two calls of Again grows with
// the duration of the checks.
package preflight
