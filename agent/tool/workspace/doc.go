// Package workspace contains the tools for agents with skills that have workspaces:
// workspace_manage for the workspaces and run_manage for the runs in them.
//
// # Design
//
// An agent sees only its own workspaces and runs, and only those of its skills. Writes go through
// the ledger, which rejects writes of superseded attempts and stores each call once. A call without
// a workspace applies to the workspace of its run.
//
// An agent must not answer the questions and reviews meant for its owner. Therefore answer,
// acknowledge and discard need an approval for each call, which shows the planned answer.
package workspace
