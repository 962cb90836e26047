package cluster

import (
	"testing"
	"time"

	"rouse/cmd/internal/cmdtest"
	"rouse/cmd/internal/endtoend"
)

const followingCluster = `agents: [{name: north-agent}, {name: south-agent}]
jobs:
  - {name: tick, agent: north-agent, host: north, every: 1s, overlap: queue_all, playbook: [{call: db_schema}], notify: {on: []}}
  - {name: report, agent: south-agent, host: south, after: [tick], playbook: [{call: db_schema}], notify: {on: []}}
  - {name: archive, agent: south-agent, host: south, after: [{job: report, on: [success, error, interrupted]}], playbook: [{call: db_schema}], notify: {on: []}}
`

// TestClusterFollows checks that another node starts the following runs exactly once, even if
// nodes, including the leader, are killed.
func TestClusterFollows(t *testing.T) {
	t.Parallel()
	endtoend.Unraced(t)
	c := newCluster(t, followingCluster)
	north, south := c.serve(t, "north"), c.serve(t, "south")
	ended := func(job string) int {
		return c.count(t, `select count(*) from runs where job = '`+job+`' and state = 'finished' and outcome = 'success'`)
	}
	cmdtest.Until(t, "a chain", func() bool { return ended("archive") >= 2 })

	north.Kill(t)
	time.Sleep(200 * time.Millisecond) // some followers of ended runs are not done yet
	south.Kill(t)
	north = c.serve(t, "north")
	south = c.serve(t, "south")
	before := ended("archive")
	cmdtest.Until(t, "the chain goes on", func() bool { return ended("archive") >= before+3 })

	north.Stop(t) // no new run starts after this
	cmdtest.Until(t, "the end of what follows", func() bool {
		return c.count(t, `select count(*) from runs where state <> 'finished' and job <> 'tick'`) == 0
	})
	south.Stop(t)
	for job, follower := range map[string]string{"tick": "report", "report": "archive"} {
		if n := c.count(t, `select count(*) from runs r where r.job = '`+job+`' and r.state = 'finished' and r.outcome = 'success'
			and (select count(*) from runs f where f.job = '`+follower+`' and f.key = 'after/' || r.id || '/`+follower+`') <> 1`); n != 0 {
			t.Errorf("%d runs of %s are not followed once", n, job)
		}
	}
	if first, second := c.count(t, `select count(*) from runs where job = 'report'`), ended("tick"); first != second {
		t.Errorf("%d runs of tick ended, and were followed by %d", second, first)
	}
}
