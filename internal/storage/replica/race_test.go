//go:build race

package replica

// raced says that the race detector watches, which makes what writes much take minutes.
const raced = true
