// Package sandbox runs unattended programs with access only to the files and the network that they
// are given. It ends all of their processes at their timeout.
//
// # Tiers
//
// A [Sandbox] determines by trial starts which [Tier] the machine supports. A [Command] names the
// weakest tier that it accepts. On a weaker machine nothing is started and Run returns a
// [TierError]. A command is never run on a weaker tier instead. docs/guides/sandbox.md lists the
// guarantees of each tier and their limits.
//
// The caller can give a command a folder for temporary files ([Command.Temp]). The caller can then
// read the folder, and must remove it.
//
// # Processes
//
// On Linux a command is started through this binary, and [Child] must be the first line of main:
//
//	rouse ─► bwrap ─► supervisor (rouse, process 1 of its own namespace) ─► the command    tier A
//	rouse ─────────► supervisor (rouse, adopts every orphan below it)    ─► the command    tier B
//
// The supervisor confines one of its threads with limits, capabilities, Landlock and seccomp. The
// order is required, because each step removes access that the previous step needs. It starts the
// command from that thread and lets the thread end. The command inherits the confinement.
//
// The supervisor itself stays unconfined and cannot be reached by the command. It reports how the
// command ended and kills the remaining processes. It also kills everything when the pipe from the
// daemon breaks, so that a killed daemon leaves no processes behind.
//
// Landlock must be applied inside bubblewrap, because a process under Landlock may not mount. The
// Go landlock module confines all threads of a process. The supervisor needs an unconfined thread,
// so this package makes the three system calls itself.
package sandbox
