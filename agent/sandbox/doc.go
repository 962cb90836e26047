// Package sandbox runs programs that nobody watches, so that they reach what they were given and
// nothing else, and so that nothing of them is left when their time is over.
//
// # Tiers
//
// A [Sandbox] finds out by real trial starts which [Tier] this machine can hold, and a [Command]
// says which is the least that will do; a weaker one starts nothing ([WeakError]). There is no
// downgrade that nobody asked for. docs/sandbox.md says what each tier holds, and what it does not.
//
// # Processes
//
// On Linux a command is started through this very binary ([Child] is the first line of main):
//
//	rouse ─► bwrap ─► keeper (rouse, process 1 of its own namespace) ─► the command    tier A
//	rouse ─────────► keeper (rouse, adopts every orphan beneath it)  ─► the command    tier B
//
// The keeper confines one of its threads (limits, capabilities, Landlock, seccomp, in this order,
// for each needs what the next one takes away), starts the command from that thread, and ends it.
// So what confines lies within what the command inherits, and the keeper, which knows how the
// command ended and ends what it left behind, is out of the command's reach. It ends everything
// when the pipe to the daemon breaks, so that a daemon which is killed leaves no process either.
//
// Landlock must be inside of bubblewrap: a process under Landlock may not mount. The landlock
// module confines all threads of a process; the keeper needs one to be free, so the three system
// calls are made here.
package sandbox
