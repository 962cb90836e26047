package main

import "testing"

// TestHelpGroups checks that every command is in a group of the help and limits the size of groups.
func TestHelpGroups(t *testing.T) {
	const most = 12
	root := newRoot(&cli{})
	members := map[string]int{}
	for _, cmd := range root.Commands() {
		if !cmd.IsAvailableCommand() {
			continue
		}
		if cmd.GroupID == "" {
			t.Errorf("rouse %s is in no group of the help", cmd.Name())
		}
		members[cmd.GroupID]++
	}
	if len(root.Groups()) != 6 {
		t.Errorf("the help has %d groups, want 6", len(root.Groups()))
	}
	for _, g := range root.Groups() {
		if n := members[g.ID]; n == 0 || n > most {
			t.Errorf("the group %s has %d commands, want 1 to %d", g.ID, n, most)
		}
	}
}
