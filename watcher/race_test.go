//go:build race

package watcher_test

// testsPerProcessor is the number of parallel tests per processor. The race detector keeps the
// processors busy, so more tests would time out.
const testsPerProcessor = 3
