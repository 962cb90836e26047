// Package next holds the tools with which an agent sets its own next alarm:
// schedule_next_run and cancel_next_run.
//
// # Design
//
// Plan is the one way to write a slot, for the tools and for the agent's owner: it asks the
// ledger for a moment at which nothing else is written, clamps the wish in it (pure, in
// scheduler/schedule), and stores what is left. So no two plans are decided on the same
// count, and a limit that holds for the agent cannot be got round by another way in.
//
// A wish that is moved or rejected is no failure: the agent is told what became of it, with
// a warning in words for each reason (OSA-71). What is wrong with a wish itself is Invalid.
//
// A wake inherits the job at the beginning of its chain, and how long the chain is: the
// job's bounds hold for what it sets going (package agent), and max_chain ends it.
package next
