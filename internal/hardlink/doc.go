// Package hardlink counts the names of a file.
package hardlink
