//go:build !race

package dispatch_test

// scale divides how many runs a test makes by default.
const scale = 10
