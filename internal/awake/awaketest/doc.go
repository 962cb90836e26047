// Package awaketest is what keeps the machine awake, for tests: a bus of their own with a logind on it. Elsewhere than on Linux it is empty.
package awaketest
