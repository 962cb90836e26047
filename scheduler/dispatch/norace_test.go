//go:build !race

package dispatch_test

// scale divides the default number of runs of a test.
const scale = 10
