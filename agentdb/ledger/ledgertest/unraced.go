//go:build !race

package ledgertest

// many is how much comes at once.
const many = 10_000
