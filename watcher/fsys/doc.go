// Package fsys reads single files for the watcher: the stamp by which a changed file is recognized,
// files below a folder that is held open, cached hashes of contents, and whether another program has
// a file open for writing. What differs between operating systems is in its platform files.
package fsys
