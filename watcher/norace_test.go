//go:build !race

package watcher_test

const testsPerProcessor = 6
