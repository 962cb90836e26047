//go:build race

package shell_test

// raced reports that the race detector is on. It makes a program start ten times slower.
const raced = true
