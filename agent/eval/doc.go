// Package eval runs scenarios with the production loop and compares the results with the
// expectations.
//
// # Design
//
// A Scenario is a YAML file. It contains the files of a working folder, the prompt, the answers of
// a scripted model, and the expected final state. Run executes it with the agent.Runner in a World,
// which has its own ledger, database and working folder.
//
// Every model must achieve the result (outcome, files, rows). The expected way to the result
// applies only to the script: exits, deduplicated calls, notices, and a shortened history. A script
// may misbehave on purpose. If it does not, the scenario can also test a real model (see
// Scenario.Misbehaves).
//
// The folder of a scenario must be empty, so that a scenario cannot overwrite a user's work or a
// home.
package eval
