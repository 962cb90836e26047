//go:build !race

package modeltest

// mutations of a stream that are tried with each adapter.
const mutations = 10_000
