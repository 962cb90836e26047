//go:build race

package modeltest

// mutations of a stream that are tried; the detector makes each of them slow.
const mutations = 500
