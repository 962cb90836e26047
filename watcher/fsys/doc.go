// Package fsys reads single files for the watcher. It provides stamps, which detect changed files,
// handles of files below an open folder, and cached hashes of contents. It also reports whether
// another program has a file open for writing. The platform files contain the differences between
// operating systems.
package fsys
