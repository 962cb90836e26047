// Package agent executes one run of one agent.
//
// # Design
//
// Runner does the work of a dispatch.Executor. A run is resolved once into a task: everything that
// it asks for (a job's prompt, playbook or module, an ad-hoc prompt, a wake, one manual call), from the plan.
// For one attempt Runner checks the job's conditions, which cost nothing and may end the run, opens
// what the agent was granted (file roots, its database, its tools), gives all of it to the one loop,
// checks the job's expectations against what was really done, and returns the result that the
// dispatcher commits. It keeps no state between runs: what a later attempt needs is in the ledger,
// and Runner rebuilds the loop's past from there.
//
// Who is configured arrives as a Plan, which a reload replaces as a whole; a run that has
// started keeps the plan it started with.
//
// # Size
//
// The package has more than forty files because a run has that many subjects, most of which need
// the Runner and the task; their names are in groups:
//
//	runner, plan, task, loop_options, run_provider    from a run to the loop
//	module*                                           a module as the provider of a run
//	prompt*, template_data, skill*                    what a model is told
//	condition*, expect, trigger_files, manifest       what is checked before and after
//	authorizer, definition, budget, roots, programs   what a run may do
//	snapshot, transcript, recovery, ledger_recorder   what an attempt begins with and leaves
//	record*, replay*, redaction                       recordings, and playing them again
//	undo*, own_outputs, database, notices             what follows from a run
package agent
