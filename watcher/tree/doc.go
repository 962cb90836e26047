// Package tree compares the files of a folder with its earlier files. It provides a fingerprint of
// all files, the differences between two trees, and the snapshot that the ledger stores. It does
// not read files.
package tree
