// Package imports converts the jobs of other schedulers to a rouse configuration.
//
// # Design
//
// Each format has a reader that converts files to a Document of jobs and comments. Settings that
// cannot be converted become remarks at the job. If they matter, the job is disabled. Everything is
// reported: each job names the line it comes from, and every unknown setting becomes a remark.
//
// The files are untrusted. Their size is limited, they are never executed, and files they refer to
// are not read. All text taken from them is escaped for YAML, templates and terminals.
//
// A single program with arguments becomes a call with an exact grant. A command that needs a shell
// gets no grant, so its owner must approve its text before the first run.
//
// The result must pass the same check as any configuration (Settle). Jobs that fail it become
// comments.
package imports
