// Package agent executes one run of one agent.
//
// # Design
//
// Runner is a dispatch.Executor. For one attempt it reads what the run asks for (a job's
// prompt or playbook, an ad-hoc prompt, an alarm, one call by hand), asks the job's gates, which cost
// nothing and may end the run, opens what the agent was granted (file roots, its database,
// its tools), gives all of it to the one loop, checks the job's expectations against what
// was really done, and returns the result that the dispatcher commits. It keeps no state
// between runs: what a later attempt needs is in the ledger, and Runner rebuilds the loop's
// past from there.
//
// Who is configured arrives as a Plan, which a reload replaces as a whole; a run that has
// started keeps the plan it started with.
package agent
