package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"rouse/agentdb/placement"
	"rouse/cmd/internal/api"
	"rouse/cmd/internal/buildinfo"
	"rouse/cmd/internal/config"
	"rouse/cmd/internal/plan"
	"rouse/internal/ledger"
	"rouse/internal/text"
	"rouse/scheduler/dispatch"
	"rouse/scheduler/dispatch/river"
	"rouse/watcher"
)

const (
	// lookLead is how often a node looks whether it leads.
	lookLead = 200 * time.Millisecond
	// leaveFor is how long a node tries to give its lease up.
	leaveFor = 3 * time.Second
)

// membership is this process's part among the nodes that share a ledger. A process that has its ledger to itself leads from the start.
type membership struct {
	node           string // its name; "" where the ledger is a file
	address        string // of the database, without a password
	triggers, work bool

	mu    sync.Mutex
	leads bool
	led   chan struct{} // closed once it leads; whoever leads does so until it ends
}

// shared says whether other processes may work on the ledger.
func (d *Daemon) shared() bool { return d.nodes.node != "" }

// join makes a daemon one of the nodes that share its ledger. It comes before anything is written.
func (d *Daemon) join(ctx context.Context, o Options) error {
	if !d.shared() || !o.Serves {
		return nil
	}

	m, err := d.ledger.Join(ctx, d.self(o.Config, d.nodes.node))
	if err != nil {
		return explainJoin(err)
	}
	d.log.Info("this is a node of a shared ledger", "node", d.nodes.node, "ledger", d.nodes.address, "id", m.Node().ID)
	if why := d.clockText(); why != "" {
		d.log.Warn(why)
	}
	return nil
}

// self is this process as the other nodes see it.
func (d *Daemon) self(cfg *config.Config, name string) ledger.Node {
	host, _ := os.Hostname() // "" is as good as what it would say
	n := ledger.Node{Name: name, Home: d.nodes.node, Host: host, PID: os.Getpid(), Version: buildinfo.Version(), Config: cfg.Sources.Alike(), Triggers: d.nodes.triggers, Lanes: d.lanes(cfg)}
	if cfg.Dashboard.Listen != "off" {
		n.Address = cfg.Dashboard.Listen
	}
	return n
}

// lanes returns how many runs this node accepts at once.
func (d *Daemon) lanes(cfg *config.Config) int {
	if !d.nodes.work {
		return 0
	}
	return cfg.Limits.Runs
}

// openEngine prepares River, which brings the runs of a shared ledger to this process.
func (d *Daemon) openEngine(ctx context.Context) (err error) {
	if !d.shared() {
		return nil
	}
	if d.jobs, err = connectRiver(ctx, d.Current().Config.Engine.Postgres, d.nodes.node); err != nil {
		return err
	}
	d.dispatcher.Engine = river.New(river.Options{Ledger: d.ledger, Pool: d.jobs, Logger: d.log})
	return nil
}

// tellLanes records a new limit for the other nodes.
func (d *Daemon) tellLanes(ctx context.Context, lanes int) {
	m := d.ledger.Membership()
	if m == nil || !d.nodes.work {
		return
	}
	if most := m.Node().Lanes; lanes > most {
		d.log.Warn("limits.runs of a node that shares its ledger is raised with a restart", "now", most, "then", lanes)
		lanes = most
	}
	if err := m.SetLanes(ctx, lanes); err != nil {
		d.log.Warn("the other nodes were not told of the new limits.runs", "error", err)
	}
}

func explainJoin(err error) error {
	if taken := new(*ledger.NameTakenError); errors.As(err, taken) {
		return fmt.Errorf("this process cannot be a node: %w", err)
	}
	return fmt.Errorf("this process cannot join the nodes of its ledger: %w", err)
}

// joinToRun makes a command a node for as long as it executes a run.
func (d *Daemon) joinToRun(ctx context.Context) (leave func(), err error) {
	if !d.shared() {
		return func() {}, nil
	}

	n := d.self(d.Current().Config, fmt.Sprintf("%s/run-%d", d.nodes.node, os.Getpid()))
	n.Triggers, n.Lanes, n.Address = false, 0, ""
	if _, err := d.ledger.Join(ctx, n); err != nil {
		return nil, explainJoin(err)
	}
	return d.leave, nil
}

// leave gives the lease up, after all else has ended.
func (d *Daemon) leave() {
	m := d.ledger.Membership()
	if m == nil {
		return
	}

	lost := m.Err() != nil
	ctx, cancel := context.WithTimeout(context.Background(), leaveFor)
	defer cancel()
	if err := m.Leave(ctx); err != nil && !lost {
		d.log.Warn("the lease of this node could not be given up; the others wait until it is over", "error", err)
	}
}

// Lost is closed once this process may not write any more, because other nodes do its work; nil where there are none.
func (d *Daemon) Lost() <-chan struct{} {
	if m := d.ledger.Membership(); m != nil {
		return m.Lost()
	}
	return nil
}

// watchLease ends the daemon when it has lost its lease, or when another node leads in its place.
func (d *Daemon) watchLease(ctx context.Context, dispatcher *dispatch.Dispatcher) error {
	m := d.ledger.Membership()
	if m == nil {
		return nil
	}
	tick := time.NewTicker(lookLead)
	defer tick.Stop()
	for {
		select {
		case <-m.Lost():
			d.log.Error("the daemon stops", "node", d.nodes.node, "error", m.Err())
			return m.Err()
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if !d.leading() || dispatcher.Leads() {
			continue
		}
		// After a crash of the database, no node leads until River has elected one again.
		if leader, err := d.ledger.Leader(ctx); err == nil && leader != 0 && leader != m.Node().ID {
			return fmt.Errorf("another node leads now: the node %s has to start again", d.nodes.node)
		}
	}
}

// leading says whether this process does what one does for all.
func (d *Daemon) leading() bool {
	d.nodes.mu.Lock()
	defer d.nodes.mu.Unlock()
	return d.nodes.leads
}

// PlacementOptions say where in a home what is that comes along to the node that works for an agent.
func PlacementOptions(home, node string, l *ledger.Ledger, log *slog.Logger) placement.Options {
	part := func(name string) string { return filepath.Join(home, name) }
	return placement.Options{Ledger: l, Node: node, Agents: part("agents"), Storage: part("storage"), State: part("replica"), Logger: log}
}

// setSchedules puts the schedules of a plan into force. Who leads keeps on record how far they are; others only know what comes next.
func (d *Daemon) setSchedules(ctx context.Context, p *plan.Plan) error {
	d.nodes.mu.Lock()
	defer d.nodes.mu.Unlock()
	if d.nodes.leads {
		return d.recordSchedules(ctx, p)
	}
	return d.scheduler.Load(ctx, p.Jobs)
}

// recordSchedules puts on record what the clock and the ends of runs start from now on, by the configuration of who leads.
func (d *Daemon) recordSchedules(ctx context.Context, p *plan.Plan) error {
	if err := d.ledger.SetFollowers(ctx, p.Followers); err != nil {
		return err
	}
	return d.scheduler.Set(ctx, p.Jobs, p.SelfScheduling)
}

// tryLead has this process lead if that is its turn: the schedules begin where the record says that they are.
func (d *Daemon) tryLead(ctx context.Context, p *plan.Plan) (bool, error) {
	lead, err := d.ledger.Lead(ctx)
	if err != nil || !lead {
		return false, err
	}

	d.nodes.mu.Lock()
	defer d.nodes.mu.Unlock()
	if err := d.recordSchedules(ctx, p); err != nil {
		return false, err
	}
	d.nodes.leads = true
	close(d.nodes.led)
	return true, nil
}

// awaitLead returns true once this process leads, and false if ctx ends before. The dispatcher has then ended the attempts of the
// previous leader, which would otherwise count for overlap.
func (d *Daemon) awaitLead(ctx context.Context, dispatcher *dispatch.Dispatcher) bool {
	if d.leading() {
		return true
	}

	tick := time.NewTicker(lookLead)
	defer tick.Stop()
	for failed := false; ; {
		var err error
		if dispatcher.Leads() {
			var lead bool
			if lead, err = d.tryLead(ctx, d.Current().Plan); err == nil && lead {
				d.log.Info("this node leads now: what runs, schedules, wakes and notices are its to decide", "node", d.nodes.node)
				return true
			}
		}
		if ctx.Err() != nil {
			return false
		}
		if err != nil && !failed {
			d.log.Warn("whether this node leads is not known; it is asked again", "error", err)
		}
		failed = err != nil

		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
	}
}

// onceLeading runs a part from when this process leads, until ctx ends.
func (d *Daemon) onceLeading(ctx context.Context, run func(context.Context) error) error {
	select {
	case <-d.nodes.led:
		return run(ctx)
	case <-ctx.Done():
		return nil
	}
}

// ownWatches are the watches that are this process's.
func (d *Daemon) ownWatches(p *plan.Plan) []watcher.Watch {
	if !d.shared() {
		return p.Watches
	}
	if !d.nodes.triggers {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(p.Watches), func(w watcher.Watch) bool { return p.Hosts[w.Job] != d.nodes.node })
}

// watchedElsewhere says whether another node may watch the folder of a job.
func (d *Daemon) watchedElsewhere(job string) bool {
	if !d.shared() {
		return false
	}
	host, ok := d.Current().Plan.Hosts[job]
	if !ok || host == "" { // what was left by a job that is gone: one node sees to it
		return !d.leading()
	}
	return host != d.nodes.node || !d.nodes.triggers
}

// refuseElsewhere refuses a file or folder of this machine where a job's runs are done on another one.
func (d *Daemon) refuseElsewhere(job string) error {
	if !d.shared() {
		return nil
	}
	switch host := d.Current().Plan.Hosts[job]; {
	case host == "":
		return &api.Error{Status: 409, Message: fmt.Sprintf("the runs of the job %s may be done on any node, and a file of this machine would not be there; give the job a host: in the configuration", job)}
	case host != d.nodes.node:
		return &api.Error{Status: 409, Message: fmt.Sprintf("the files of the job %s are on the node %s; say it there", job, host)}
	}
	return nil
}

// saveConfigHash tells the other nodes that this one has another configuration now.
func (d *Daemon) saveConfigHash(ctx context.Context, cfg *config.Config) {
	m := d.ledger.Membership()
	if m == nil {
		return
	}
	if err := m.SetConfig(ctx, cfg.Sources.Alike()); err != nil && ctx.Err() == nil {
		d.log.Warn("the other nodes were not told of the new configuration", "error", err)
	}
}

// Engine returns the location of the ledger and the nodes that use it.
func (d *Daemon) Engine(ctx context.Context) (api.Engine, error) {
	out := api.Engine{Kind: "file", Leads: d.reloads != nil && d.leading(), Nodes: []api.Node{}, Queues: []api.EngineQueue{}, Agents: map[string]string{}, Stay: []string{}, Problems: []string{}}
	if !d.shared() {
		return out, nil
	}

	out.Kind, out.Address, out.Node, out.SkewMS = "postgres", d.nodes.address, d.nodes.node, d.ledger.Skew().Milliseconds()
	all, err := d.ledger.Nodes(ctx)
	if err != nil {
		return out, err
	}
	leader, err := d.ledger.Leader(ctx)
	if err != nil {
		return out, err
	}
	sent, err := d.ledger.SentRuns(ctx)
	if err != nil {
		return out, err
	}
	jobs, err := d.ledger.RiverJobs(ctx)
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
	for _, s := range sent {
		on[s.Node]++
	}

	own := d.Current().Config.Sources.Alike()
	for _, n := range all {
		if !n.Alive() && n.Home != n.Name { // a command that has ended
			continue
		}
		one := api.Node{Name: n.Name, Host: n.Host, PID: n.PID, Version: n.Version, Address: n.Address, StartedAt: api.At(n.StartedAt), Alive: n.Alive(), GoneAt: api.At(n.GoneAt), Why: n.Why,
			Triggers: n.Triggers, Work: n.Lanes > 0, Lanes: n.Lanes, Self: n.Name == d.nodes.node && n.PID == os.Getpid(), ConfigDiffers: n.Alive() && d.Current().Problem == nil && n.Config != own}
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

	homes, err := d.ledger.AgentHomes(ctx)
	if err != nil {
		return out, err
	}
	for agent, home := range homes {
		if out.Agents[agent] = home.Node; !home.State.Free() {
			out.Stay = append(out.Stay, agent)
		}
	}
	slices.Sort(out.Stay)
	out.Problems = append(out.Problems, d.nodeProblems(out)...)
	return out, nil
}

// nodeProblems say what keeps several nodes from being one.
func (d *Daemon) nodeProblems(e api.Engine) (out []string) {
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
		out = append(out, "another configuration than here is in force at "+text.List(differ, maxLogged)+": who leads decides when runs are due, and who does a run how; give all nodes the same files")
	}
	if len(versions) > 0 {
		out = append(out, fmt.Sprintf("this is rouse %s, and %s; bring all nodes to one version", buildinfo.Version(), text.List(versions, maxLogged)))
	}
	if why := d.clockText(); why != "" {
		out = append(out, why)
	}
	if why := d.valuesText(); why != "" {
		out = append(out, why)
	}
	return out
}

// clockText says that the clock of this machine is wrong, or the database's.
func (d *Daemon) clockText() string {
	skew := d.ledger.Skew()
	if skew.Abs() < clocksApart {
		return ""
	}
	way := "behind"
	if skew < 0 {
		way = "ahead of"
	}
	return fmt.Sprintf("the clock of this machine is %s %s that of the database, which decides when something is due; have both keep the time (NTP)", skew.Abs().Round(time.Second), way)
}

// checkNodes says which processes share the ledger.
func (d *Daemon) checkNodes(ctx context.Context) api.Check {
	c := api.Check{Name: "nodes", OK: true}
	e, err := d.Engine(ctx)
	if err != nil {
		c.OK, c.Detail, c.Remedy = false, err.Error(), "see the message"
		return c
	}

	var said []string
	for _, n := range e.Nodes {
		said = append(said, n.Text(d.Current().Config.Zone()))
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

// WorkedOn says whether nodes do runs of the ledger, beside this process.
func (d *Daemon) WorkedOn(ctx context.Context) bool {
	if !d.shared() {
		return false
	}
	alive, err := d.ledger.AliveNodes(ctx)
	return err == nil && slices.ContainsFunc(alive, func(n ledger.Node) bool { return n.Lanes > 0 && n.Home == n.Name })
}
