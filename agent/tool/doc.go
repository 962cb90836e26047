// Package tool is the contract of tools: what they are given, what they answer, and who
// may call them.
//
// # Design
//
// A tool is a typed function with a name, a description and an effect. Its schema comes
// from its argument type, and every call is checked and gently corrected against it before
// the function runs, so no tool validates for itself (OSA-11). What a tool answers is an
// Envelope (OSA-10): bad arguments and failed work are envelopes that the model reads; a
// Go error means that the host is broken, and ends the run.
//
// What a call would do its tool says before it is made, as a Need; a Gate decides on that alone,
// and on what its owner has said (UNI-06). A tool neither asks nor refuses by itself.
//
// A Registry is the set of tools of one run, already cut to what was granted. Files are
// reached through Roots only, which is built on os.Root: no path, link or race leads out.
package tool
