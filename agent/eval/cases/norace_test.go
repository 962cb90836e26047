//go:build !race

package cases_test

const raced = false
