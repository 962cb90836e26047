// Package hardlink counts the names (hard links) of a file.
package hardlink
