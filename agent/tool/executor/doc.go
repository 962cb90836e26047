// Package executor runs installed agent programs, such as Claude Code and Codex, in the place of the loop.
//
// # Design
//
// A run that such a program does is one call of one tool, on the loop, as a manual call is: it has its intent in the
// ledger before it begins, the authorizer decides on it, and after a crash it is uncertain. The program is started by
// the shell family's Launcher, confined as every command; it gets the task as its input, or as an argument, and never
// by way of a shell.
//
// What it prints is read while it comes (Reader): a form of JSON that is recognised by its shape, a file each
// (claude.go, codex.go, gemini.go, plain.go), or text. It is what the program says of itself: it is recorded as
// such, holds the run within its bounds, and is never needed to be true. What is malformed, cut off or hostile
// makes the reading poorer, and never a success: conclude (ending.go) is the one table of what an ending means.
//
// Before the program starts, what lies where it may write is kept (file.Before), so that an undo of the run
// reaches what it changes.
package executor
