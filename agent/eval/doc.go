// Package eval runs scenarios with the production loop and compares the results with the
// expectations.
//
// # Design
//
// A Scenario is a YAML file with the files of a working folder, the prompt, the answers of a
// scripted model, and the expected state after the run. Run executes it with the agent.Runner in a
// World, which has its own ledger, database and working folder.
//
// Every model must achieve the result (outcome, files, rows). The way to the result applies only to
// the script, which misbehaves on purpose: exits, deduplicated calls, notices, and a shortened
// history. A scenario can therefore also test a real model, unless Misbehaves is set.
//
// The folder of a scenario must be empty, so that a scenario cannot overwrite a user's work or a
// home.
package eval
