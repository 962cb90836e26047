// Package playbook is a model provider without a model: a job's fixed list of calls.
//
// # Design
//
// Each turn asks for one call; the next turn finds its result in Request.Results, saves what is
// to be saved, and continues. The loop that runs it is the loop that runs a model, so a playbook
// has the same bounds, the same record and the same authorizer.
//
// A call's key is its position (p3, or p3.7 for the seventh item of an each), which is the
// same in every attempt. A resumed attempt begins at the first call again; the loop
// answers from the record those calls that have a recorded result. That works only if the
// same results lead to the same calls, so expressions have no clock, and lists made of a
// map are sorted.
//
// Strings are templates; a string that begins with "= " is an expression that keeps its
// type. What a template inserts is data and is never expanded again. Neither can reach
// anything but its data, and the work of both is bounded, so a mistake in a configuration
// ends a run with a message, and not the daemon.
package playbook
