//go:build !race

package git_test

const raced = false
