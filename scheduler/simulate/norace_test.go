//go:build !race

package simulate_test

// days is the default number of recorded days.
const days = 4
