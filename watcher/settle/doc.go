// Package settle decides when a file is complete. The debouncer waits until a file stops changing.
// CheckReady finds files that are open for writing or are hard links, and CheckEmpty finds files
// that are still being downloaded. The package has no clock of its own: its callers pass the time.
package settle
