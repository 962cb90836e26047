// Package replicate ships a home to another place while it is used, and makes a backup of what is there as it was at an instant.
//
// # Design
//
// What is shipped, is shipped in rounds, a second apart at the most while something is written, and none while nothing is. A round
// fixes an instant as a backup does: while the ledger takes no writes, it is known until where the logs of all databases belong to
// it. Then the databases are shipped, then what is not in databases, then the ledger, all with that instant. So whatever the ledger
// of the place knows has arrived before, and a restore takes of everything else what is not later than its ledger.
//
// The place belongs to one home, which a marker in it says. Nothing waits for the place: what cannot be shipped stays in the logs of the
// databases, and a log that becomes too large is let go (replica.Follower).
//
// In the place: rouse-replica.json, whose it is; ledger/ and db/NAME/, LTX files of Litestream by level; files/, all else by its content;
// index/, which files there were when.
package replicate
