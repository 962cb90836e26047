// Package tool defines tools: their specs, arguments, results, authorization and access to files.
//
// A call's arguments are validated before the tool's function runs. Invalid arguments and failed
// work are returned as an Envelope, which the model reads. A Go error means that the host is broken
// and ends the run. Tools do not authorize calls: the Authorizer decides on the Access that a tool
// returns for a call. Tools open files only through Roots, so that no path, link or race leads out
// of the granted folders.
package tool
