// Package next contains the tools with which an agent plans its own next run: schedule_next_run and
// cancel_next_run.
//
// # Design
//
// PlanWake is the only way to store a wake, for the tools and for the agent's owner. It clamps the
// request (see scheduler/schedule) and stores the result. If the usage has changed in between, it
// tries again. Two wakes are therefore never decided on the same count, and the agent's limits
// cannot be bypassed.
//
// A request that is moved or rejected is not a failure: the result has a warning for each reason. A
// mistake in the request itself is an Invalid error.
//
// A wake inherits the job at the start of its chain and the length of the chain. The job's bounds
// apply to the runs of the chain (see package agent), and max_chain limits its length.
package next
