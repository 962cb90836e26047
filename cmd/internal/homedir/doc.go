// Package homedir manages the home, the folder that holds all state of one rouse. It provides the
// lock of the home, the connection to the process that holds it, and the location of its ledger.
package homedir
