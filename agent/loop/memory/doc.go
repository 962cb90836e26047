// Package memory is the working memory of a run in phases: its plan, what was found out, the steps
// it took, and what went wrong.
//
// # Design
//
// The package is pure. A Memory is a fold over the calls of a run and their results: the
// same calls give the same memory, so nothing of it is stored, and an attempt that continues
// where another one ended builds it again from the transcript. It keeps every output whole;
// what a model sees is View, rendered for each request within a budget, with the newest
// results whole and older ones cut to a line.
//
// A Board is the plan, and the todo list too: the two are one list that two tools write.
package memory
