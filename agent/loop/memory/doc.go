// Package memory implements the working memory of a run in phases: its plan, facts, steps and
// errors.
//
// # Design
//
// The package is pure. A Memory is computed from the calls of a run and their results. The same
// calls give the same memory, so it is not stored: a resumed attempt rebuilds it from the
// transcript. It keeps every output in full. The model sees View, which is rendered for each
// request within a budget. The newest results are shown in full and older ones in one line.
//
// A Board holds both the plan and the todo list. They are the same list, written by two tools.
package memory
