//go:build race

package module_test

// raced is true if the race detector is on. It needs more memory than a module process may use.
const raced = true
