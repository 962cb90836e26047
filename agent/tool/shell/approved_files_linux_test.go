package shell_test

import (
	"strings"
	"testing"
)

// TestApprovedByPattern: what a pattern stands for is bound to the approval, whatever bytes an agent has made
// names of.
func TestApprovedByPattern(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, folder := range []string{"sub", "\xff"} {
		b.write(folder+"/job.sh", "echo one\n")
		before := b.asked("sh */job.sh; true")
		b.write(folder+"/job.sh", "echo two\n")
		if after := b.asked("sh */job.sh; true"); before.Action == after.Action || !strings.Contains(after.Shown, "echo two") {
			t.Errorf("%q: another content is the same action: %s", folder, after.Shown)
		}
	}
}
