// Package settle decides when a file is complete. The debouncer waits until a file stops changing, and
// CheckReady finds files that are still open for writing, partly downloaded, or hard links. The package
// has no clock of its own: its callers pass the time.
package settle
