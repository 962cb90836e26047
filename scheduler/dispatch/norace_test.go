//go:build !race

package dispatch_test

const scale = 1
