// Package tree compares the files of a folder with those that were there before: a fingerprint of all
// files, the differences between two trees, and the snapshot that the ledger keeps of a folder. It reads
// no file.
package tree
