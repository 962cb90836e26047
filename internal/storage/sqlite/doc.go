// Package sqlite opens SQLite the one right way.
//
// # Design
//
// A DB is one file with one writer and a small pool of readers. Every write goes through
// Do, which hands an operation to the group-commit goroutine (Writer): all operations
// that are waiting become one transaction, so sixteen callers pay for one fsync, and each
// gets its own error. synchronous=FULL: what Do has acknowledged survives a power cut.
//
// A file is identified before it is trusted: its application id says whose it is, a quick
// check says whether it is whole, and its user_version which migrations it has seen. A
// file that fails is reported as *CorruptError and left as it is; nothing is recreated
// silently.
//
// What is written can be kept out of the file itself (Hold), as long as it is not known whether the
// file is sound.
//
// The host and the SQL of a model never share a driver instance: OpenGuarded gives a
// connection pool whose every connection carries an authorizer and limits from birth.
package sqlite
