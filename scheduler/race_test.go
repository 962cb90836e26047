//go:build race

package scheduler_test

// many is how many jobs are due at once: the race detector slows the database down tenfold.
const many = 500
