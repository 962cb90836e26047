//go:build race

package ledgertest

// many is how much comes at once. The race detector makes SQLite fifty times slower.
const many = 1000
