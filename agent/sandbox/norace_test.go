//go:build !race

package sandbox_test

// raced says whether the race detector is at work: it makes each start several times as dear, and its
// memory is more than limits of a test allow.
const raced = false
