// Package shell lets an agent run programs: shell_run, and bash for models that expect that name.
//
// # Design
//
// A command line is parsed with the grammar of bash, without executing any part of it. A single
// program with plain words becomes an argv. The argv is compared with the grants and then executed
// as is, so the executed command is the one that matched. Everything else is a script. No grant
// covers a script: the owner sees the whole text, and the approved text is passed to bash.
//
// The sandbox confines programs. Commands refused for their text are only a protection against
// mistakes.
//
// A command has temporary places that are deleted after it. A command may move files there by
// mistake. A move (a copy and a removal) cannot be recognized from the command's words or system
// calls. Therefore the result decides: if a folder that the command could write has lost files, the
// files in the temporary places are kept in that folder.
//
// The changes of mv, cp, rm and mkdir are predicted before they run, and recorded with the content
// that would be lost. The record is kept if the command succeeds and the prediction was correct;
// otherwise it is dropped. Other writes into a folder that the job watches cannot be predicted.
// They are not attributed to the run, unless they are the destination of such an mv or cp.
package shell
