//go:build race

package agent_test

// raced says that the race detector is on, under which a database takes twenty times as long.
const raced = true
