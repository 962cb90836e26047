// Package eval drives the production loop over fixture workspaces, and says whether it did
// what a scenario wants (OSA-27).
//
// # Design
//
// A Scenario is a YAML file: the files of a workspace, the prompt, the answers of a scripted
// model, and what is wanted afterwards. Run gives it to the agent.Runner that every run goes
// through, on a ledger and a database of its own, and compares. What came of it (outcome,
// files, rows) is wanted of every model; how it came about (exits, calls that were answered
// from what is known, notices, a shortened history) only of the script, which misbehaves on
// purpose. So a scenario is also a task to try a real model on, unless it says that it is not.
//
// A scenario runs in a folder that must be empty: never over somebody's work, and never over a
// home.
package eval
