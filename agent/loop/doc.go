// Package loop is the one driver of all runs, whoever answers: a model, or a playbook.
//
// # Design
//
// Each iteration checks for a stop, takes one step from the budget, asks the provider,
// executes the calls of its answer, and records all of it before and after it happens
// (OSA-01, OSA-03). What differs between surfaces is a Policy of named knobs.
//
// Before any call of an answer is made, the gate has decided on all of them in the model's
// order; where it has to ask the agent's owner, the run ends here and goes on later with the
// same calls. The calls of one answer run at the same time, except that those which write the same
// place keep their order; their results go back in the model's order (OSA-07). A tool that
// ends the run makes its batch serial (OSA-06).
//
// The loop keeps the books that a small model cannot: what was read and still holds is not
// read again, an error that would only come again is given again, and what is repeated
// without progress is spoken of (OSA-08, OSA-12…14). Notices ride one request and are never
// part of the history.
//
// A run in phases keeps a working memory beside its history: package memory. Its step is a
// tool that the loop answers itself; what a step does is a call like any other, with a record
// and a key of its own. The view of the memory rides at the end of each request, so that what
// stands before it stays the same bytes.
//
// What a model gets wrong (a tool that is not there, arguments that are no JSON, silence) is
// answered, never an error of the host. A call that a stop cut off is recorded without a
// result: a later attempt makes it again if it reads or is journalled, and otherwise says
// that nobody knows what it did.
//
// Why a run stops early travels as the cause of its context: a bound that was used up, a
// person, or the daemon's own end.
package loop
