//go:build !race

package scheduler_test

// many is how many jobs are due at once.
const many = 1000
