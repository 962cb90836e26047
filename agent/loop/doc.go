// Package loop is the one driver of all runs, whoever answers: a model, or a playbook.
//
// # Design
//
// Each iteration checks whether the run has to stop, takes one step from the budget, asks the
// provider, executes the calls of its answer, and records all of it (OSA-01, OSA-03). What differs
// between kinds of runs is a Policy of named settings.
//
// The authorizer decides on all calls of an answer before any of them is made. If it has to ask the
// owner, the run ends here and continues later with the same calls. The calls of one answer run at
// the same time, except that calls that write the same place keep their order. Results go back in
// the model's order (OSA-07). A tool that ends the run makes its batch serial (OSA-06).
//
// The loop keeps books for small models: what still holds is not read again, an error that would
// repeat is returned from memory, and repetition without progress gets a notice (OSA-08,
// OSA-12…14). A notice is part of one request and never of the history.
//
// A run in phases keeps a working memory: package memory. Its step is a tool that the loop answers
// itself; what a step does is a call with a record and a key of its own. The view of the memory is
// at the end of each request, so that providers can cache what comes before.
//
// Mistakes of a model are answered, never an error of the host. A call that was cut off is recorded
// without a result: a later attempt makes it again if it reads or is journalled, and otherwise
// reports that its effect is unknown.
//
// The cause of the context is why a run stops early: a used-up bound, a person, or the shutdown.
package loop
