// Package sandbox runs programs that nobody watches, so that they reach what they were given and
// nothing else, and so that no process of theirs outlives its time.
//
// # Tiers
//
// A [Sandbox] finds out by real trial starts which [Tier] this machine supports, and a [Command]
// names the weakest one it accepts; on a weaker machine nothing is started ([TierError]). There is
// no silent downgrade. docs/guides/sandbox.md says what each tier guarantees, and what it does not.
//
// A command has a place for temporary files, which its caller may give it ([Command.Temp]): then it is the
// caller's to look through and to remove.
//
// # Processes
//
// On Linux a command is started through this very binary ([Child] is the first line of main):
//
//	rouse ─► bwrap ─► supervisor (rouse, process 1 of its own namespace) ─► the command    tier A
//	rouse ─────────► supervisor (rouse, adopts every orphan below it)    ─► the command    tier B
//
// The supervisor confines one of its threads (limits, capabilities, Landlock, seccomp, in this
// order, because each step needs what the next one takes away), starts the command from that
// thread, and lets the thread end. The command inherits the confinement; the supervisor itself
// stays unconfined and out of the command's reach, reports how the command ended, and kills what
// it left behind. It also kills everything when the pipe from the daemon breaks, so that a daemon
// that is killed leaves no process either.
//
// Landlock has to be applied inside bubblewrap: a process under Landlock may not mount. The Go
// landlock module confines all threads of a process; the supervisor needs one to stay free, so the
// three system calls are made here.
package sandbox
