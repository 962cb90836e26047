//go:build unix

package cluster

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/cmdtest"
	"rouse/cmd/internal/endtoend"
	"rouse/internal/ledger/ledgertest"
)

// TestClusterLostLease freezes a node for longer than its lease. When it continues, it must exit
// with an error and must not have written anything.
func TestClusterLostLease(t *testing.T) {
	t.Parallel()
	c := newCluster(t, ticking)
	north, south := c.serve(t, "north"), c.serve(t, "south")
	var r api.Run
	endtoend.RunJSON(t, &r, c.at("north", "run", "slow", "--json")...)
	cmdtest.Until(t, "its start", func() bool { return c.count(t, `select count(*) from attempts where state = 'running'`) == 1 })

	if err := north.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	cmdtest.Until(t, "the end of its lease", func() bool { return c.engine(t, "south").Leader == "south" })
	gone := c.count(t, `select max(gone_at) from nodes where name = 'north'`)
	if err := north.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := north.Wait(); err == nil || !strings.Contains(north.Err.String(), "this node has lost its lease") {
		t.Errorf("it ended with %v:\n%s", err, north.Err.String())
	}
	if n := c.count(t, fmt.Sprintf(`select count(*) from attempts a join nodes n on n.id = a.node where n.name = 'north' and (a.state not in ('running', 'interrupted') or a.started_at > %d)`, gone)); n != 0 {
		t.Errorf("%d attempts were written by a node without a lease", n)
	}
	south.Stop(t)
}

const counting = `agents: [{name: counter}]
jobs:
  - {name: count, agent: counter, playbook: [{call: db_query, with: {sql: "with recursive n(i) as (select 1 union all select i + 1 from n where i < 1000000) select count(*) as n from n"}}], notify: {on: [error]}}
`

// TestClusterFrozenRun freezes a node during a run, with SIGSTOP, until another node has executed
// the run. The frozen node must write nothing and exit with an error. The outcome is that of the
// other node.
func TestClusterFrozenRun(t *testing.T) {
	t.Parallel()
	c := newCluster(t, counting)
	north := c.serve(t, "north")
	var r api.Run
	endtoend.RunJSON(t, &r, c.at("north", "run", "count", "--json")...)
	cmdtest.Until(t, "its call", func() bool { return c.count(t, `select count(*) from calls where state = 'running'`) == 1 })
	if err := north.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	south := c.serve(t, "south")
	cmdtest.Until(t, "the end of its lease", func() bool {
		return c.count(t, `select count(*) from nodes where name = 'north' and gone_at <> 0`) == 1
	})

	endtoend.RunJSON(t, nil, "engine", "take", "--postgres", c.url, "--node", "south", "counter")
	cmdtest.Until(t, "the end of the run", func() bool {
		endtoend.RunJSON(t, &r, c.at("south", "show", r.ID, "--json")...)
		return r.Outcome != ""
	})
	if r.Outcome != "success" || r.Node != "south" || r.Attempt != 2 {
		t.Errorf("%+v", r)
	}

	before := c.contents(t)
	if err := north.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := north.Wait(); err == nil || !strings.Contains(north.Err.String(), "this node has lost its lease") {
		t.Errorf("it ended with %v:\n%s", err, north.Err.String())
	}
	if after := c.contents(t); after != before {
		t.Errorf("the record has become\n%s\nafter\n%s", after, before)
	}
	south.Stop(t)
	ledgertest.Audited(t, ledgertest.OpenOn(t, c.url))
}

// contents returns the recorded data of runs.
func (c cluster) contents(t *testing.T) string {
	t.Helper()
	var parts []string
	for _, table := range []string{"runs", "attempts", "steps", "calls", "events", "outbox", "inbox", "jobs", "occurrences", "file_ops", "labels", "agent_homes"} {
		parts = append(parts, fmt.Sprintf(`select '%[1]s ' || count(*) || ' ' || coalesce(string_agg(r::text, ' ' order by r::text), '') from %[1]s r`, table))
	}
	var all string
	if err := c.db.QueryRowContext(t.Context(), `select string_agg(line, E'\n' order by line) from (`+strings.Join(parts, " union all ")+`) tables(line)`).Scan(&all); err != nil {
		t.Fatal(err)
	}
	return all
}
