// Package next holds the tools with which an agent plans its own next wake:
// schedule_next_run and cancel_next_run.
//
// # Design
//
// Plan is the one way to store a wake, for the tools and for the agent's owner: in one transaction
// of the ledger it clamps the request (pure, in scheduler/schedule) and stores the result. So no
// two wakes are decided on the same count, and no other way in gets around the limits of the agent.
//
// A request that is moved or rejected is no failure: the agent learns what became of it, with a
// warning in words for each reason (OSA-71). A mistake in the request itself is Invalid.
//
// A wake inherits the job at the beginning of its chain, and the length of the chain: the bounds of
// the job hold for the runs that it leads to (package agent), and max_chain ends them.
package next
