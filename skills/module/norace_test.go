//go:build !race

package module_test

const raced = false
