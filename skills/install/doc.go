// Package install installs skills into a directory of skills, and records in a lock file where each
// came from and what its content was.
//
// A source is a folder, an archive, or a repository with a path and a revision. All three
// become a stream of entries (name, kind, content), and one writer checks them: links, devices,
// absolute paths, names that mean something else on another system and too much of anything are
// refused, and nothing is written outside of a staging directory. The skill can be inspected
// before it is used: Staged says what it is and what it contains. Only then is it moved to its
// place, by one rename, and pinned in the lock file by the hash of its content, so that later
// changes are detected.
package install
