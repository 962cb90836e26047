// Package text words and shortens what people and models read: texts cut to a length, texts that
// a terminal may show whatever a stranger wrote into them, sizes, numbers of things, lists of
// names, and the name that was probably meant.
//
// # Design
//
// Lengths are counted in characters (runes) where a reader is meant, and in bytes where a file or
// a request has a limit. A text that is cut for a reader ends in "…", which counts as one of its
// characters: a limit holds for all that is shown. What is cut stays valid UTF-8.
//
// A text from outside can move a terminal's cursor, paint over what stands there, turn the
// direction of what follows, or have no width at all. OneLine and Lines leave that out of what is
// only to be read; Visible and Clean write it out where somebody decides, or works on, what is
// there: Visible for approvals, where a blank that is none matters too, Clean for the output of
// programs in whatever language.
package text
