// Package check judges a configuration that was read: it finds the mistakes that a single value
// cannot show, such as an unknown model, a wrong schedule or a folder that an agent may change.
//
// Run reports problems to the document, with the path of the setting. There is a file for each
// subject: jobs, triggers, templates, calls, agents, modules, network, nodes, folders and so on.
package check
