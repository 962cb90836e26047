// Package owner checks the ownership of files, folders and connections. It also makes files of this
// process private.
//
// The rules are those of ssh: a file is unsafe if another user owns it or can write to it, or to a
// folder above it. Root is trusted, and so is the group with the user's own number. In a folder
// with the sticky bit, other users cannot replace the user's files. If file modes do not describe
// other users' rights, as on Windows, every file is treated as the user's own.
package owner
