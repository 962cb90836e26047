// Package eval runs the production loop over fixture folders, and says whether it did what a
// scenario expects (OSA-27).
//
// # Design
//
// A Scenario is a YAML file: the files of a working folder, the prompt, the answers of a scripted
// model, and the expected state afterwards. Run gives it to the agent.Runner that every run goes
// through, in a World: a ledger, a database and a working folder of its own, and compares. The result (outcome, files, rows)
// is expected of every model; how it came about (exits, deduplicated calls, notices, a shortened
// history) only of the script, which misbehaves on purpose. So a scenario is also a task to try a
// real model on, unless it says that it is not.
//
// A scenario runs in a folder that must be empty: it must not overwrite anybody's work, nor a home.
package eval
