// Package loop is the one driver of all runs, whoever answers: a model, or a playbook.
//
// # Design
//
// Each iteration checks whether the run has to stop, takes one step from the budget, asks the
// provider, executes the calls of its answer, and records all of it before and after it happens
// (OSA-01, OSA-03). What differs between kinds of runs is a Policy of named settings.
//
// Before any call of an answer is made, the authorizer has decided on all of them in the model's
// order; where it has to ask the agent's owner, the run ends here and continues later with the
// same calls. The calls of one answer run at the same time, except that calls that write the same
// place keep their order; their results go back in the model's order (OSA-07). A tool that
// ends the run makes its batch serial (OSA-06).
//
// The loop does the bookkeeping that a small model cannot: what was read and still holds is not
// read again, an error that would only repeat is returned from memory, and repetition without
// progress gets a notice (OSA-08, OSA-12…14). A notice is part of one request and never of the
// history.
//
// A run in phases keeps a working memory beside its history: package memory. Its step is a
// tool that the loop answers itself; what a step does is a call like any other, with a record
// and a key of its own. The view of the memory is put at the end of each request, so that the
// bytes before it stay the same and providers can cache them.
//
// What a model gets wrong (a tool that does not exist, arguments that are not JSON, silence) is
// answered, never an error of the host. A call that was cut off by a stop is recorded without a
// result: a later attempt makes it again if it reads or is journalled, and otherwise reports
// that its effect is unknown.
//
// Why a run stops early is the cause of its context: a bound that was used up, a person, or the
// shutdown of the daemon.
//
// # Size
//
// The package has more than thirty exported names, for it has one driver and all that it is told and tells: options,
// policies, bounds, the record, and the runs within a call (Reducer, Completer, Inner), which only it can nest.
package loop
