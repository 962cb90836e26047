// Package shell lets an agent run programs: shell_run, and bash for models that know that name.
//
// # Design
//
// A command line is read as bash reads it, and nothing of it is executed to find out what it
// says. One program with plain words is an argv; it is compared with the grants and executed as
// that argv, so that what was matched is what runs, whatever a shell would have thought of it.
// Everything else is a script, which no grant covers: its owner sees it whole, and what they
// approve is what bash is given (OSA-37, UNI-06). The gate decides; a tool of this package tells
// it what a call would do, and executes what comes through.
//
// The confinement is the sandbox's. What is refused here by its looks (YOA-05) is a guard against
// mistakes and nothing more.
//
// What mv, cp, rm and mkdir will change is worked out before they run, and recorded with what is
// lost by it; after an end without a failure that has come about it stays, else it is forgotten
// (OSA-36). A command's own writes into a folder that its job watches cannot be known before:
// they are taken as everybody's, unless they are the destination of such a mv or cp.
package shell
