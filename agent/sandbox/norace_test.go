//go:build !race

package sandbox_test

// raced reports whether the race detector is on. It makes each start several times slower, and
// needs more memory than the limits of some tests.
const raced = false
