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
// Runner holds the parts that each have a package of their own: permit, condition, prompt, failover,
// spend, servers, blocker, notice and others. Its callers ask those parts directly.
//
// The configuration arrives as a Plan. A reload replaces it as a whole; a run that has started
// keeps its plan.
package agent
