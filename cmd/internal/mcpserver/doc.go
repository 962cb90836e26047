// Package mcpserver serves the Model Context Protocol. Other agent programs can list runs and their
// reasons, run jobs, and answer questions.
//
// # Design
//
// The tools use api.Client like the commands do, so they have the same permissions and results.
// They cannot approve anything: approvals must come from a person. Results contain untrusted text
// from models, files and strangers. Clients are told so, and long texts are truncated.
//
// Runs are resources named rouse://runs/ID. A client that subscribes to a run is notified when the
// run ends.
package mcpserver
