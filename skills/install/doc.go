// Package install installs skills into a directory of skills. A lock file records the source and
// the content hash of each installed skill.
//
// A source is a folder, an archive, or a Git repository with a path and a revision. All sources
// become a stream of entries. A single writer checks the entries and writes them to a staging
// directory. It rejects links, devices, absolute paths, names that are not portable, and sources
// that exceed the limits. The staged skill can be inspected before it is installed. Installation
// moves it to its place with one rename and records its hash, so that later changes are detected.
package install
