// Package check finds mistakes in a configuration that a single value does not show. Examples are
// an unknown model, an invalid schedule, or a folder that an agent may change.
//
// Run adds problems to the document with the path of the setting. Each subject has its own file:
// jobs, triggers, templates, calls, agents, modules, network, nodes, folders and so on.
package check
