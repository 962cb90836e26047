// Package agent executes one run of one agent.
//
// # Design
//
// Runner does the work of a dispatch.Executor. A run is resolved once from the plan into a task:
// what it does (a job, a prompt, a wake or one manual call) and what it may do. For one attempt,
// Runner checks the job's conditions, opens what the agent was granted, runs the loop, checks the
// job's expectations, and returns the result that the dispatcher commits. It keeps no state between
// runs: a later attempt is rebuilt from the ledger.
//
// The configuration arrives as a Plan. A reload replaces it as a whole; a run that has started
// keeps its plan.
//
// # Size
//
// The package has more than forty files because a run has that many subjects, most of which need
// the Runner and the task. Their names are in groups:
//
//	runner, plan, task, attempt, loop_options, run_*   from a run to the loop
//	module*                                            a module as the provider of a run
//	prompt*, template_data, skills, first_request      what a model is told
//	condition*, expect, trigger_files                  what is checked before and after
//	authorizer, definition, budget, roots, programs    what a run may do
//	snapshot, transcript, recovery, ledger_recorder    what an attempt begins with and leaves
//	replay, redaction                                 recordings, and replaying them
//	undo*, own_outputs, database, notices              what follows from a run
package agent
