// Package loop executes all runs, with a model or with a playbook as the provider.
//
// # Design
//
// Each iteration checks whether the run must stop, takes one step from the budget, asks the
// provider, executes the calls of the answer, and records everything. Kinds of runs differ only in
// their Policy.
//
// The authorizer decides on all calls of an answer before any of them is made. If it must ask the
// owner, the run ends and continues later with the same calls. The calls of one answer run at the
// same time, except that calls that write the same place keep their order. Results are returned in
// the model's order. If one of the calls ends the run, the calls run one after the other.
//
// The loop supports small models. Unchanged files are not read again. Errors that would repeat are
// returned from memory. Repetition without progress gets a notice. A notice is part of one request
// and not of the history.
//
// A run in phases keeps a working memory (package memory). Its step is a tool that the loop handles
// itself. The call within a step has its own record and key. The view of the memory is at the end
// of each request, so that providers can cache the beginning.
//
// Mistakes of a model produce failed results, never errors of the host. An interrupted call is
// recorded without a result. A later attempt repeats it if it only reads or is journalled.
// Otherwise the attempt reports that the effect is unknown.
//
// The cause of the context is the reason a run stops early: an exhausted bound, a person or the
// shutdown.
package loop
