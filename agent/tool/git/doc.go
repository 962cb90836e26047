// Package git lets an agent see what has changed in the repository that is its working folder, and
// commit it with its owner's approval: git_status, git_diff, git_commit (OSA-38).
//
// # Design
//
// A repository may have been written by strangers, and git runs programs that its configuration names:
// filters, drivers, monitors, hooks, helpers. So git never reads that configuration. Each call creates
// a scratch folder that serves as the common folder of the repository (GIT_COMMON_DIR): with links to
// its objects and references, and a configuration with only those few settings of the repository that
// say how its files are stored. A setting that is not on this short list does not exist for git; there
// is no list of dangerous ones to maintain.
//
// A commit is made with plumbing (write-tree, commit-tree, update-ref), which looks into no submodule,
// and finds no hook since core.hooksPath is /dev/null. What it would contain is computed beforehand, in
// a separate index and object folder: the owner approves that tree, and no other tree is committed.
//
// All of it runs in the sandbox, and can write to the scratch folder only; a commit also to .git.
package git
