// Package workspace holds the tools of agents whose skills keep workspaces: workspace_manage for what outlives
// runs, run_manage for the runs that work there.
//
// # Design
//
// An agent sees its own workspaces and runs alone, and of those the ones of skills that it has. What it writes goes
// through the ledger, which fences it by the attempt and takes each call once. A call that names no
// workspace is about the one that its run works in.
//
// Nobody reads along while an agent works, so that what its owner is asked (a question, a review) it does not answer itself:
// answer, acknowledge and discard need an approval each time, which shows what would be said.
package workspace
