// Package mcpserver lets other agent programs ask rouse by the Model Context Protocol: what ran and why, what waits, and to run a
// job or answer a question.
//
// # Design
//
// A tool asks the API as a command does, by api.Client, so it can do nothing that the API would not, and says the same. It approves
// nothing: what a person must decide, a program that asks in their name must not. What it answers holds texts of models, files and
// strangers; clients are told so, and long ones are cut.
//
// The runs are resources, rouse://runs/ID; who subscribes to one hears when it has ended.
package mcpserver
