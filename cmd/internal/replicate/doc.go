// Package replicate continuously copies a home to another place, and creates a backup from such a
// copy.
//
// # Design
//
// Copying happens in rounds, at most one per second, and only if something was written. A round
// fixes an instant in the same way as a backup. While the ledger accepts no writes, it records the
// log position of every database. It then copies the agents' databases, the other files and finally
// the ledger, all labeled with that instant. Everything the copied ledger refers to has therefore
// arrived before it. A restore uses the ledger's version and, for everything else, the newest
// version that is not later.
//
// A place belongs to one home, as recorded in a marker file. Writers never wait for the place: data
// that cannot be copied stays in the databases' logs. If a log becomes too large, it is dropped
// (replica.Follower).
//
// Layout of a place:
//
//   - rouse-replica.json: the home the place belongs to
//   - ledger/, db/NAME/: LTX files of Litestream, by level
//   - files/: all other files, by SHA-256
//   - index/: the list of files at each instant
//   - rounds/: instants of rounds in which the ledger did not change
package replicate
