// Package loop is the one driver of all runs, whoever answers: a model, or a playbook.
//
// # Design
//
// Each iteration checks for a stop, takes one step from the budget, asks the provider,
// executes the calls of its answer, and records all of it before and after it happens
// (OSA-01, OSA-03). What differs between surfaces is a Policy of named knobs.
//
// The calls of one answer run at the same time, except that those which write the same
// place keep their order; their results go back in the model's order (OSA-07). A tool that
// ends the run makes its batch serial (OSA-06).
//
// What a model gets wrong (a tool that is not there, arguments that are no JSON, silence) is
// answered, never an error of the host. A call that a stop cut off is recorded without a
// result: a later attempt makes it again if it reads or is journalled, and otherwise says
// that nobody knows what it did.
//
// Why a run stops early travels as the cause of its context: a bound that was used up, a
// person, or the daemon's own end.
package loop
