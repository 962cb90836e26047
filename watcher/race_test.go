//go:build race

package watcher_test

// testsPerProcessor is how many tests wait at the same time: the race detector keeps the
// processors busy, and those that wait in vain fail.
const testsPerProcessor = 3
