//go:build race

package cases_test

// raced reports that the race detector is on. It needs more memory than a module's process may use.
const raced = true
