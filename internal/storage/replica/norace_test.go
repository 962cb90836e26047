//go:build !race

package replica

// raced reports whether the race detector is on. It makes tests with many writes take minutes.
const raced = false
