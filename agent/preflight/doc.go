// Package preflight looks whether what a run needs is there: folders, programs, and whatever else it is given a look for. It changes
// nothing, and follows nothing below a place where agents write.
//
// # Design
//
// Ten thousand jobs may need the same folder, and each look at the queue asks for all of them. So a finding belongs to its source, not to
// a job, and is kept: a second where nothing is wrong, so that a run is never started on an old belief, and until the next look where
// something is. Only Again looks at what is wrong, so that what is in the way of ten thousand runs is looked at once; and it
// takes a hundredth of the time at most, so that the more there is the longer it rests.
package preflight
