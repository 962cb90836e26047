// Package shell lets an agent run programs: shell_run, and bash for models that know that name.
//
// # Design
//
// A command line is parsed as bash parses it, and nothing of it is executed to find out what it means.
// One program with plain words is an argv; it is compared with the grants and executed as that argv,
// so that what was matched is what runs, whatever a shell would have made of it. Everything else is a
// script, which no grant covers: the owner sees all of it, and what they approve is what bash is given
// (OSA-37, UNI-06). The authorizer decides; a tool of this package tells it what a call would do, and
// executes what was allowed.
//
// Confinement is the sandbox's business. What is refused here because of how it looks (YOA-05) is a
// guard against mistakes and nothing more.
//
// A command has places of its own that are gone after it. Whoever moves a file there means to keep it, and neither
// the words of a command nor its calls of the system tell a move (a copy, then a removal) from other work. So what counts is
// what is there afterwards: if a folder that it could write has lost files, what lies in those places is put back into it.
//
// What mv, cp, rm and mkdir will change is predicted before they run, and recorded with what would be
// lost; the record stays if the command succeeds and the prediction came true, else it is dropped
// (OSA-36). Other writes of a command into a folder that its job watches cannot be predicted: they
// count as anybody's, unless they are the destination of such a mv or cp.
package shell
