// Package agent executes the runs of agents. A Runner resolves a run from the plan into a task,
// executes one attempt at a time, and returns the result that the dispatcher commits.
//
// A Runner keeps no state between attempts: each attempt is rebuilt from the ledger. A reload of
// the configuration replaces the whole plan, but a run that has started keeps its plan.
package agent
