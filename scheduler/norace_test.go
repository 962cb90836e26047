//go:build !race

package scheduler_test

const many = 10_000
