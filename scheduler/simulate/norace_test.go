//go:build !race

package simulate_test

const days = 8
