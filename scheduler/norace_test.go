//go:build !race

package scheduler_test

// many is the number of jobs that are due at once.
const many = 1000
