//go:build race

package dispatch_test

// scale divides the number of runs of a test, because the race detector makes the database ten
// times slower.
const scale = 20
