//go:build race

package git_test

// raced says that the race detector is on, under which a program takes ten times as long to start.
const raced = true
