// Package git lets an agent see what has changed in the repository that is its working folder,
// and commit it with its owner's leave: git_status, git_diff, git_commit (OSA-38).
//
// # Design
//
// A repository is content that strangers may have written, and git runs what its configuration
// names: filters, drivers, monitors, hooks, helpers. So git never reads that configuration. Each
// call makes a scratch folder with a configuration of its own, which holds those few settings of
// the repository that only say how its files are kept, and stands as the common folder of the
// repository (GIT_COMMON_DIR), with links to the objects and the references. What is not in the
// short list of settings does not exist for git; there is no list of dangerous ones to keep up.
//
// A commit is made of its parts (write-tree, commit-tree, update-ref), none of which has a hook or
// looks into a submodule. What it would hold is worked out beforehand with an index and objects
// aside: that tree is what its owner approves, and another tree is not committed.
//
// All of it runs in the sandbox, with nothing to be written but the scratch folder, and .git of a
// commit.
package git
