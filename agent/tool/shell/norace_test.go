//go:build !race

package shell_test

const raced = false
