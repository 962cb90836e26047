// Package clients tests rouse with the public clients of the protocols that it speaks. It is a module of its own, so that the module rouse
// requires none of them. Its path begins with rouse/cmd so that it can import internal packages.
package clients
