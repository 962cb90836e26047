package cluster

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/buildinfo"
	"rouse/internal/ledger/node"
	"rouse/internal/text"
)

// maxNamed is the maximum number of nodes listed in a message.
const maxNamed = 20

// Engine returns the location of the ledger and the nodes that use it.
func (s *Self) Engine(ctx context.Context) (api.Engine, error) {
	out := api.Engine{Kind: "file", Leads: s.Serves && s.Leading(), Nodes: []api.Node{}, Queues: []api.EngineQueue{}, Agents: map[string]string{}, Stay: []string{}, Problems: []string{}}
	if !s.Shared() {
		return out, nil
	}

	out.Kind, out.Address, out.Node, out.SkewMS = "postgres", s.Address, s.Name, s.Ledger.Skew().Milliseconds()
	all, err := s.Ledger.Nodes.List(ctx)
	if err != nil {
		return out, err
	}
	leader, err := s.Ledger.Nodes.Leader(ctx)
	if err != nil {
		return out, err
	}
	sent, err := s.Ledger.Nodes.SentRuns(ctx)
	if err != nil {
		return out, err
	}
	jobs, err := s.Ledger.Nodes.RiverJobs(ctx)
	if err != nil {
		return out, err
	}
	for _, j := range jobs {
		out.Queues = append(out.Queues, api.EngineQueue(j))
		if j.State == "paused" {
			out.Problems = append(out.Problems, fmt.Sprintf("the queue %s is paused in River: its runs wait until you resume it in River UI", j.Name))
		}
	}
	on := map[string]int{}
	for _, run := range sent {
		on[run.Node]++
	}

	own := s.Setup().Config.Sources.Alike()
	for _, n := range all {
		if !n.Alive() && n.Home != n.Name { // a command that has ended
			continue
		}
		one := api.Node{Name: n.Name, Host: n.Host, PID: n.PID, Version: n.Version, Address: n.Address, StartedAt: api.At(n.StartedAt), Alive: n.Alive(), GoneAt: api.At(n.GoneAt), Why: n.Why,
			Triggers: n.Triggers, Work: n.Lanes > 0, Lanes: n.Lanes, Self: n.Name == s.Name && n.PID == os.Getpid(), ConfigDiffers: n.Alive() && s.Setup().Problem == nil && n.Config != own}
		if n.Alive() {
			one.Runs = on[n.Name]
		}
		if one.Leads = n.Alive() && n.ID == leader; one.Leads {
			out.Leader = n.Name
		}
		out.Nodes = append(out.Nodes, one)
	}
	slices.SortFunc(out.Nodes, func(a, b api.Node) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), a.StartedAt.Compare(b.StartedAt.Time))
	})

	homes, err := s.Ledger.Nodes.AgentHomes(ctx)
	if err != nil {
		return out, err
	}
	for agent, home := range homes {
		if out.Agents[agent] = home.Node; !home.State.Free() {
			out.Stay = append(out.Stay, agent)
		}
	}
	slices.Sort(out.Stay)
	out.Problems = append(out.Problems, s.nodeProblems(out)...)
	return out, nil
}

// nodeProblems returns the differences between nodes that keep them from working together.
func (s *Self) nodeProblems(e api.Engine) (out []string) {
	var differ, versions []string
	working := false
	for _, n := range e.Nodes {
		if !n.Alive {
			continue
		}
		working = working || n.Work
		if n.ConfigDiffers {
			differ = append(differ, n.Name)
		}
		if n.Version != buildinfo.Version() {
			versions = append(versions, n.Name+" has "+n.Version)
		}
	}

	if e.Leader == "" {
		out = append(out, "no node leads, so no run starts, no schedule is due and no notice is sent: start one with triggers (rouse serve)")
	}
	if !working {
		out = append(out, "no node does runs, so that they stay queued: start one that works (rouse serve)")
	}
	if len(differ) > 0 {
		out = append(out, "another configuration than here is in force at "+text.List(differ, maxNamed)+": who leads decides when runs are due, and who does a run how; give all nodes the same files")
	}
	if len(versions) > 0 {
		out = append(out, fmt.Sprintf("this is rouse %s, and %s; bring all nodes to one version", buildinfo.Version(), text.List(versions, maxNamed)))
	}
	if why := s.ClockProblem(); why != "" {
		out = append(out, why)
	}
	if why := s.valuesProblem(); why != "" {
		out = append(out, why)
	}
	return out
}

// ClockProblem returns a message if the clocks of this machine and the database differ, or "".
func (s *Self) ClockProblem() string {
	skew := s.Ledger.Skew()
	if skew.Abs() < clocksApart {
		return ""
	}
	way := "behind"
	if skew < 0 {
		way = "ahead of"
	}
	return fmt.Sprintf("the clock of this machine is %s %s that of the database, which decides when something is due; have both keep the time (NTP)", skew.Abs().Round(time.Second), way)
}

// Check checks the processes that share the ledger.
func (s *Self) Check(ctx context.Context) api.Check {
	c := api.Check{Name: "nodes", OK: true}
	e, err := s.Engine(ctx)
	if err != nil {
		c.OK, c.Detail, c.Remedy = false, err.Error(), "see the message"
		return c
	}

	var said []string
	for _, n := range e.Nodes {
		said = append(said, n.Text(s.Setup().Config.Zone()))
	}
	c.Detail = strings.Join(said, "; ")
	if len(said) == 0 {
		c.Detail = "none has worked on this ledger yet"
	}
	if len(e.Problems) > 0 {
		c.OK, c.Detail, c.Remedy = false, strings.Join(e.Problems, "; ")+"; "+c.Detail, "see each message; all of it: rouse engine status"
	}
	return c
}

// WorkedOn reports whether a daemon executes runs of the ledger on any node.
func (s *Self) WorkedOn(ctx context.Context) bool {
	if !s.Shared() {
		return false
	}
	alive, err := s.Ledger.Nodes.Alive(ctx)
	return err == nil && slices.ContainsFunc(alive, func(n node.Node) bool { return n.Lanes > 0 && n.Home == n.Name })
}
