//go:build race

package dispatch_test

// scale divides how many runs a test makes: the race detector slows the database down tenfold.
const scale = 20
