// Package owner says whose files, folders and connections are, and keeps what this process makes to its user.
//
// The judgement is that of ssh: what another user owns or may write is theirs, and so is all that lies below it. root can change
// everything anyway, the group with the user's own number is the user alone, and in a folder with the
// sticky bit others cannot replace what is not theirs. Where modes say nothing about other users, as on Windows,
// everything counts as the user's own.
package owner
