// Package git gives an agent git_status, git_diff and git_commit for the repository in its working
// folder. Commits need the owner's approval.
//
// # Design
//
// A repository may contain untrusted content, and git runs programs that the repository's
// configuration names: filters, drivers, monitors, hooks and helpers. git therefore never reads
// that configuration. Each call creates a scratch folder that serves as the common folder of the
// repository (GIT_COMMON_DIR). It contains links to the objects and references, and a configuration
// with the few settings that describe how files are stored. This is an allowlist, so there is no
// list of dangerous settings to maintain.
//
// Commits use plumbing commands (write-tree, commit-tree, update-ref). These do not enter
// submodules, and they find no hooks because core.hooksPath is /dev/null. The tree is computed
// beforehand in a separate index and object folder. The owner approves that tree, and no other tree
// is committed.
//
// git runs in the sandbox and can write only to the scratch folder. A commit can also write to
// .git.
package git
