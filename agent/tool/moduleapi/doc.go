// Package moduleapi is the API that a module of a skill gets from its host: the methods of the object
// host, each of them a tool that the loop authorizes, records and bounds like any other (OSL-07, OSL-08, OSL-09).
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
// Below lies what has a life of its own: the storage of skills (store), and their sign-ins (signin). The token of one is a secret like
// those of the vault, with a name that no secret can have, and for the hosts that manifest and grants name.
//
// What a skill offers to agents are tools, too (Offers, OSL-32): those of its manifest, and those that its module registers, which are held to the
// same rules when they are registered and again when they are read. Who answers their calls is for the caller.
package moduleapi
