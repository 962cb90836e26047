// Package host is what a module gets of its host: the methods of the object host, each of them a tool that the loop
// authorizes, records and bounds like any other (OSL-07, OSL-08, OSL-09).
//
// # Design
//
// A method exists for a module when its manifest declares it and the grants of its agent cover it; of any other the
// module gets undefined (Methods). A call of a method becomes a call of a tool with named arguments (Translate), and
// the envelope of that becomes what the module gets, or an error with a code (Answer.Value). Commands are calls of shell_run:
// there is one gate for programs (UNI-06).
//
// Values of secrets go in, and never come out: what a module was given of the vault is replaced by its placeholder in
// the arguments of each later call, and filled in again by whoever sends it, for the one host that it is for.
//
// The storage of a skill is a database of its own for each agent. A write notes the key of its call in the same
// transaction, so that a call which is made again writes once.
package host
