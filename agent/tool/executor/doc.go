// Package executor runs installed agent programs, such as Claude Code and Codex, instead of the
// agent loop.
//
// The run of such a program is one call of one tool. So it is recorded before it begins, the
// authorizer decides on it, and after a crash its effect is uncertain. The program is confined like
// every command. Its task is its input or an argument. No shell is involved.
//
// A Reader parses the output while the program runs. Each known form of JSON has a file of its own:
// claude.go, codex.go, gemini.go and plain.go. The output is the program's own report and may be
// false. Malformed or truncated output never counts as a success. The function conclude in
// ending.go decides on the outcome.
//
// Before the program starts, the files that it can change are copied (file.Before), so that its
// changes can be undone.
package executor
