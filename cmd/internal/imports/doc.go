// Package imports reads the jobs of other schedulers and writes them as a configuration.
//
// # Design
//
// A reader for each format makes a Document of the files it is given: jobs, and comments for what is no job. Whatever of a job
// cannot be carried over becomes a remark at it, and where that matters the job is off. Nothing is dropped without a word: each
// job names the line it comes from, and each setting that a reader does not know is a remark.
//
// The files are a stranger's. They are read up to a size, never executed, and name no other file that is read; whatever is
// written of them is quoted for YAML, for templates and for terminals.
//
// A command that is one program with its arguments becomes a call with an exact grant. One that needs a shell gets no grant, so
// that its owner approves its text before it first runs.
//
// What is written is checked as it would be when it is used (Settle): what the check refuses becomes a comment.
package imports
