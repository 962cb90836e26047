// Package homedir knows the folder that holds all state of one rouse, its home: who may open it and for how long (the
// lock), how a command reaches the process that holds it (the socket), where its ledger is, and whether that is missing.
package homedir
