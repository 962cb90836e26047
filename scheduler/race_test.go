//go:build race

package scheduler_test

// many is the number of jobs that are due at once. It is small, because the race detector slows the
// database down.
const many = 500
