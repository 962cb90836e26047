//go:build race

package simulate_test

// days is the default number of recorded days. It is small, because the race detector slows the
// database down.
const days = 2
