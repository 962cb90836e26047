// Package playbook implements a model provider that makes a job's fixed list of calls, without a
// model.
//
// # Design
//
// Each turn requests one call. The next turn finds its result in Request.Results, saves it if
// configured, and continues. A playbook runs in the same loop as a model, so it has the same
// limits, the same record and the same authorizer.
//
// The key of a call is its position: p3, or p3.7 for the seventh item of an each. It is the same in
// every attempt. A resumed attempt starts at the first call again, and the loop answers calls that
// have a recorded result. This requires that the same results lead to the same calls. Expressions
// therefore have no clock, and lists made from a map are sorted.
//
// Strings are templates. A string that begins with "= " is an expression, and its value keeps its
// type. Inserted values are data and are not expanded again. Templates and expressions can access
// only their data, and their work is limited. A mistake in a configuration therefore ends the run
// with a message and does not affect the daemon.
package playbook
