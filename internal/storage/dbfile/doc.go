// Package dbfile keeps the files of databases well: what is known of one that is closed, its
// copies, and how another takes its place.
//
// # Design
//
// A Marker beside the file says whether it was closed, and with which size and checksum. Inspect
// compares a file that nobody has open with it; a Keeper writes it while one is open: "open" before
// the first write, the checksum when the file is closed.
//
// Backups are in a folder backups/ beside the file, with the time and the reason in their names.
// Replace puts another file into the place of one, which it keeps in replaced/; a crash leaves
// either.
package dbfile
