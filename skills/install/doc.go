// Package install brings skills into a directory of skills, and keeps a record of where each
// came from and what it was.
//
// A source is a folder, an archive, or a repository with a path and a revision. All three
// become a stream of entries (name, kind, content), and one reader judges them: links,
// devices, absolute paths, names that another system reads otherwise, too much of anything are
// refused, and nothing is written outside of a staging directory. What arrived is looked at
// before it is used: Staged says what the skill is, what it holds and what it may want. Only
// then is it put in its place, by one rename, and pinned in the lock file by the hash of its
// content. A pinned skill that changed is told from one that did not.
package install
