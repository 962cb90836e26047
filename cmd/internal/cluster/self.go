// Package cluster makes this process one of the nodes that share a ledger in PostgreSQL. It
// handles connections, leases and leader election, assigns watches and jobs to nodes, and stores
// large values.
//
// Self exists even if the ledger is a file. Its process is then the only leader.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/buildinfo"
	"rouse/cmd/internal/config"
	"rouse/cmd/internal/plan"
	"rouse/internal/ledger"
	"rouse/internal/ledger/node"
	"rouse/scheduler"
	"rouse/scheduler/dispatch"
	"rouse/watcher"
)

const (
	// lookLead is the interval between checks whether this node is the leader.
	lookLead = 200 * time.Millisecond
	// leaveFor is the timeout for releasing the lease.
	leaveFor = 3 * time.Second
)

// Self is this process among the nodes that share a ledger. It leads from the start if it does not
// share its ledger.
type Self struct {
	Name           string // name of the node; "" if the ledger is a file
	Address        string // address of the database without a password
	Triggers, Work bool   // the process starts runs from triggers, and executes runs
	Serves         bool   // it is a daemon

	// The following fields are set once the process has opened the parts.
	Ledger    *ledger.Ledger
	Scheduler *scheduler.Scheduler
	Setup     func() *plan.Setup // returns the configuration in force
	Logger    *slog.Logger

	mu    sync.Mutex
	leads bool
	led   chan struct{} // closed once it leads; a leader stays leader until it ends
}

// New returns a process that does not lead yet.
func New(serves, triggers, work bool, setup func() *plan.Setup, log *slog.Logger) *Self {
	return &Self{Serves: serves, Triggers: triggers, Work: work, Setup: setup, Logger: log, led: make(chan struct{})}
}

// Shared reports whether other processes can use the ledger.
func (s *Self) Shared() bool { return s.Name != "" }

// Join registers a daemon as a node. It must be called before the first write.
func (s *Self) Join(ctx context.Context, cfg *config.Config) error {
	if !s.Shared() || !s.Serves {
		return nil
	}

	m, err := s.Ledger.Nodes.Join(ctx, s.describe(cfg, s.Name))
	if err != nil {
		return explainJoin(err)
	}
	s.Logger.Info("this is a node of a shared ledger", "node", s.Name, "ledger", s.Address, "id", m.Node().ID)
	if why := s.ClockProblem(); why != "" {
		s.Logger.Warn(why)
	}
	return nil
}

// describe returns the description of this process for other nodes.
func (s *Self) describe(cfg *config.Config, name string) node.Node {
	host, _ := os.Hostname() // an empty host name is acceptable
	n := node.Node{Name: name, Home: s.Name, Host: host, PID: os.Getpid(), Version: buildinfo.Version(), Config: cfg.Sources.Alike(), Triggers: s.Triggers, Lanes: s.lanes(cfg)}
	if cfg.Dashboard.Listen != "off" {
		n.Address = cfg.Dashboard.Listen
	}
	return n
}

// lanes returns how many runs this node accepts at once.
func (s *Self) lanes(cfg *config.Config) int {
	if !s.Work {
		return 0
	}
	return cfg.Limits.Runs
}

// SetLanes records a new limit for the other nodes.
func (s *Self) SetLanes(ctx context.Context, lanes int) {
	m := s.Ledger.Nodes.Membership()
	if m == nil || !s.Work {
		return
	}
	if most := m.Node().Lanes; lanes > most {
		s.Logger.Warn("limits.runs of a node that shares its ledger is raised with a restart", "now", most, "then", lanes)
		lanes = most
	}
	if err := m.SetLanes(ctx, lanes); err != nil {
		s.Logger.Warn("the other nodes were not told of the new limits.runs", "error", err)
	}
}

func explainJoin(err error) error {
	if taken := new(*node.NameTakenError); errors.As(err, taken) {
		return fmt.Errorf("this process cannot be a node: %w", err)
	}
	return fmt.Errorf("this process cannot join the nodes of its ledger: %w", err)
}

// JoinToRun makes a command a node while it executes a run. The caller must call leave.
func (s *Self) JoinToRun(ctx context.Context) (leave func(), err error) {
	if !s.Shared() {
		return func() {}, nil
	}

	n := s.describe(s.Setup().Config, fmt.Sprintf("%s/run-%d", s.Name, os.Getpid()))
	n.Triggers, n.Lanes, n.Address = false, 0, ""
	if _, err := s.Ledger.Nodes.Join(ctx, n); err != nil {
		return nil, explainJoin(err)
	}
	return s.Leave, nil
}

// Leave releases the lease. It must be called last.
func (s *Self) Leave() {
	m := s.Ledger.Nodes.Membership()
	if m == nil {
		return
	}

	lost := m.Err() != nil
	ctx, cancel := context.WithTimeout(context.Background(), leaveFor)
	defer cancel()
	if err := m.Leave(ctx); err != nil && !lost {
		s.Logger.Warn("the lease of this node could not be given up; the others wait until it is over", "error", err)
	}
}

// Lost returns a channel that is closed when this process has lost its lease and must not write
// any more. It returns nil if the process is not a node.
func (s *Self) Lost() <-chan struct{} {
	if m := s.Ledger.Nodes.Membership(); m != nil {
		return m.Lost()
	}
	return nil
}

// WatchLease returns an error if the daemon loses its lease or another node becomes the leader.
func (s *Self) WatchLease(ctx context.Context, dispatcher *dispatch.Dispatcher) error {
	m := s.Ledger.Nodes.Membership()
	if m == nil {
		return nil
	}
	tick := time.NewTicker(lookLead)
	defer tick.Stop()
	for {
		select {
		case <-m.Lost():
			s.Logger.Error("the daemon stops", "node", s.Name, "error", m.Err())
			return m.Err()
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if !s.Leading() || dispatcher.Leads() {
			continue
		}
		// After a crash of the database there is no leader until River elects one.
		if leader, err := s.Ledger.Nodes.Leader(ctx); err == nil && leader != 0 && leader != m.Node().ID {
			return fmt.Errorf("another node leads now: the node %s has to start again", s.Name)
		}
	}
}

// Leading reports whether this process is the leader.
func (s *Self) Leading() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leads
}

// SetSchedules activates the schedules of a plan. Only the leader records their progress.
func (s *Self) SetSchedules(ctx context.Context, p *plan.Plan) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leads {
		return s.recordSchedules(ctx, p)
	}
	return s.Scheduler.Load(ctx, p.Jobs)
}

// recordSchedules records the schedules and successors of jobs according to the leader's
// configuration.
func (s *Self) recordSchedules(ctx context.Context, p *plan.Plan) error {
	if err := s.Ledger.SetSuccessors(ctx, p.Followers); err != nil {
		return err
	}
	return s.Scheduler.Set(ctx, p.Jobs, p.SelfScheduling)
}

// TryLead makes this process the leader if it is elected. Its schedules continue at the recorded
// times.
func (s *Self) TryLead(ctx context.Context, p *plan.Plan) (bool, error) {
	lead, err := s.Ledger.Nodes.Lead(ctx)
	if err != nil || !lead {
		return false, err
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.recordSchedules(ctx, p); err != nil {
		return false, err
	}
	s.leads = true
	close(s.led)
	return true, nil
}

// AwaitLead waits until this process is the leader. It returns false if ctx ends first. Before it
// returns true, the dispatcher has ended the attempts of the previous leader. They would otherwise
// count for overlap.
func (s *Self) AwaitLead(ctx context.Context, dispatcher *dispatch.Dispatcher) bool {
	if s.Leading() {
		return true
	}

	tick := time.NewTicker(lookLead)
	defer tick.Stop()
	for failed := false; ; {
		var err error
		if dispatcher.Leads() {
			var lead bool
			if lead, err = s.TryLead(ctx, s.Setup().Plan); err == nil && lead {
				s.Logger.Info("this node leads now: what runs, schedules, wakes and notices are its to decide", "node", s.Name)
				return true
			}
		}
		if ctx.Err() != nil {
			return false
		}
		if err != nil && !failed {
			s.Logger.Warn("whether this node leads is not known; it is asked again", "error", err)
		}
		failed = err != nil

		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
	}
}

// OnceLeading calls run once this process is the leader. It returns nil if ctx ends first.
func (s *Self) OnceLeading(ctx context.Context, run func(context.Context) error) error {
	select {
	case <-s.led:
		return run(ctx)
	case <-ctx.Done():
		return nil
	}
}

// OwnWatches returns the watches that this process is responsible for.
func (s *Self) OwnWatches(p *plan.Plan) []watcher.Watch {
	if !s.Shared() {
		return p.Watches
	}
	if !s.Triggers {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(p.Watches), func(w watcher.Watch) bool { return p.Hosts[w.Job] != s.Name })
}

// WatchedElsewhere reports whether another node may watch the folder of a job.
func (s *Self) WatchedElsewhere(job string) bool {
	if !s.Shared() {
		return false
	}
	host, ok := s.Setup().Plan.Hosts[job]
	if !ok || host == "" { // a removed job; only the leader cleans up after it
		return !s.Leading()
	}
	return host != s.Name || !s.Triggers
}

// RefuseElsewhere returns an error for a local file or folder if another node executes the job's
// runs.
func (s *Self) RefuseElsewhere(job string) error {
	if !s.Shared() {
		return nil
	}
	switch host := s.Setup().Plan.Hosts[job]; {
	case host == "":
		return &api.Error{Status: 409, Message: fmt.Sprintf("the runs of the job %s may be done on any node, and a file of this machine would not be there; give the job a host: in the configuration", job)}
	case host != s.Name:
		return &api.Error{Status: 409, Message: fmt.Sprintf("the files of the job %s are on the node %s; say it there", job, host)}
	}
	return nil
}

// SaveConfigHash publishes the hash of a new configuration to the other nodes.
func (s *Self) SaveConfigHash(ctx context.Context, cfg *config.Config) {
	m := s.Ledger.Nodes.Membership()
	if m == nil {
		return
	}
	if err := m.SetConfig(ctx, cfg.Sources.Alike()); err != nil && ctx.Err() == nil {
		s.Logger.Warn("the other nodes were not told of the new configuration", "error", err)
	}
}
