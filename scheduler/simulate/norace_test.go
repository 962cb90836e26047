//go:build !race

package simulate_test

// days is how many recorded days are played by default.
const days = 4
