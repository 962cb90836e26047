//go:build race

package simulate_test

// days is how many recorded days are played: the race detector slows the database down tenfold.
const days = 2
