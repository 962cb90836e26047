// Package dbfile protects database files while they are closed: it detects changes with checksums,
// makes backups and replaces files atomically.
//
// A marker file beside each database records whether it was closed cleanly, its size and its
// checksum. Inspect compares a closed file with its marker; a Keeper updates the marker of an open
// one. Replace keeps the old database, and a crash leaves either the old or the new one in place.
package dbfile
