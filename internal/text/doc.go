// Package text formats and shortens text for people and models: sizes, counts, durations, lists of
// names, safe text for terminals, and the nearest known name for a typo.
//
// Lengths are in characters (runes) if a person reads the text, and in bytes if a file or request
// has a limit. Text that is cut for a reader ends in "…", which counts as one character. OneLine
// and Lines remove characters that could manipulate a terminal. Visible and Clean escape them
// instead: Visible also escapes unusual spaces, for approvals; Clean keeps the characters of all
// languages, for program output.
package text
