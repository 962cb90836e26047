// Package tool is the contract of tools: what they get, what they answer, and who may call them.
//
// # Design
//
// A tool is a typed function with a Spec: name, description, effect, and every other property that
// somebody treats tools by. Its schema is made from its argument type, and every call is checked and
// gently corrected against it before the function runs, so that no tool validates for itself (OSA-11).
// The answer of a tool is an Envelope (OSA-10): bad arguments and failed work are envelopes that the
// model reads; a Go error means that the host is broken, and ends the run.
//
// Before a call is made its tool says, as a Need, what the call would do. The Authorizer decides
// on that alone, and on what the owner has answered before (UNI-06). A tool neither asks nor refuses by
// itself.
//
// A Registry is the set of tools of one run, already reduced to what was granted. Files are opened
// through Roots only, which is built on os.Root: no path, link or race leads out.
package tool
