// Package clients tests rouse with the public clients of its protocols. It is a separate module, so
// that the module rouse does not require these clients. Its path begins with rouse/cmd, so that it
// can import internal packages.
package clients
