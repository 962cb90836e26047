//go:build race

package cases_test

// raced says that the race detector is on: its memory is more than the process of a module may have.
const raced = true
