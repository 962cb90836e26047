//go:build unix

package main

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/cmdtest"
)

// A node that was frozen for longer than its lease ends when it goes on, with a failure, and has written nothing meanwhile.
func TestClusterLostLease(t *testing.T) {
	t.Parallel()
	c := newCluster(t, ticking)
	north, south := c.serve(t, "north"), c.serve(t, "south")
	var r api.Run
	runJSON(t, &r, c.at("north", "run", "slow", "--json")...)
	cmdtest.Until(t, "its start", func() bool { return c.count(t, `select count(*) from attempts where state = 'running'`) == 1 })

	if err := north.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	cmdtest.Until(t, "the end of its lease", func() bool { return c.engine(t, "south").Leader == "south" })
	gone := c.count(t, `select max(gone_at) from nodes where name = 'north'`)
	if err := north.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := north.Wait(); err == nil || !strings.Contains(north.stderr.String(), "this node has lost its lease") {
		t.Errorf("it ended with %v:\n%s", err, north.stderr.String())
	}
	if n := c.count(t, fmt.Sprintf(`select count(*) from attempts a join nodes n on n.id = a.node where n.name = 'north' and (a.state not in ('running', 'interrupted') or a.started_at > %d)`, gone)); n != 0 {
		t.Errorf("%d attempts were written by a node without a lease", n)
	}
	south.stop(t)
}
