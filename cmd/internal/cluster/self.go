// Package cluster makes this process one of the nodes that share a ledger in PostgreSQL: connections, leases, who leads, which
// watches and jobs are whose, and where large values are kept. Self is also there if the ledger is a file; it then leads alone.
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
	// lookLead is how often a node looks whether it leads.
	lookLead = 200 * time.Millisecond
	// leaveFor is how long a node tries to give its lease up.
	leaveFor = 3 * time.Second
)

// Self is this process among the nodes that share a ledger. A process that has its ledger to itself leads from the start.
type Self struct {
	Name           string // of the node; "" if the ledger is a file
	Address        string // of the database, without a password
	Triggers, Work bool   // the process looks for reasons to start runs, and executes runs
	Serves         bool   // it is a daemon

	// Set when the process has opened them.
	Ledger    *ledger.Ledger
	Scheduler *scheduler.Scheduler
	Setup     func() *plan.Setup // the configuration in force
	Logger    *slog.Logger

	mu    sync.Mutex
	leads bool
	led   chan struct{} // closed once it leads; whoever leads does so until it ends
}

// New returns a process that does not lead yet.
func New(serves, triggers, work bool, setup func() *plan.Setup, log *slog.Logger) *Self {
	return &Self{Serves: serves, Triggers: triggers, Work: work, Setup: setup, Logger: log, led: make(chan struct{})}
}

// Shared says whether other processes may work on the ledger.
func (s *Self) Shared() bool { return s.Name != "" }

// Join makes a daemon one of the nodes that share its ledger. It comes before anything is written.
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

// describe is this process as the other nodes see it.
func (s *Self) describe(cfg *config.Config, name string) node.Node {
	host, _ := os.Hostname() // "" is as good as what it would say
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

// JoinToRun makes a command a node for as long as it executes a run.
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

// Leave gives the lease up, after all else has ended.
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

// Lost is closed once this process may not write any more, because other nodes do its work; nil where there are none.
func (s *Self) Lost() <-chan struct{} {
	if m := s.Ledger.Nodes.Membership(); m != nil {
		return m.Lost()
	}
	return nil
}

// WatchLease ends the daemon when it has lost its lease, or when another node leads in its place.
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
		// After a crash of the database, no node leads until River has elected one again.
		if leader, err := s.Ledger.Nodes.Leader(ctx); err == nil && leader != 0 && leader != m.Node().ID {
			return fmt.Errorf("another node leads now: the node %s has to start again", s.Name)
		}
	}
}

// Leading says whether this process does what one does for all.
func (s *Self) Leading() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leads
}

// SetSchedules puts the schedules of a plan into force. Who leads keeps on record how far they are; others only know what comes next.
func (s *Self) SetSchedules(ctx context.Context, p *plan.Plan) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leads {
		return s.recordSchedules(ctx, p)
	}
	return s.Scheduler.Load(ctx, p.Jobs)
}

// recordSchedules puts on record what the clock and the ends of runs start from now on, by the configuration of who leads.
func (s *Self) recordSchedules(ctx context.Context, p *plan.Plan) error {
	if err := s.Ledger.SetSuccessors(ctx, p.Followers); err != nil {
		return err
	}
	return s.Scheduler.Set(ctx, p.Jobs, p.SelfScheduling)
}

// TryLead has this process lead if that is its turn: the schedules begin where the record says that they are.
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

// AwaitLead returns true once this process leads, and false if ctx ends before. The dispatcher has then ended the attempts of the
// previous leader, which would otherwise count for overlap.
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

// OnceLeading runs a part from when this process leads, until ctx ends.
func (s *Self) OnceLeading(ctx context.Context, run func(context.Context) error) error {
	select {
	case <-s.led:
		return run(ctx)
	case <-ctx.Done():
		return nil
	}
}

// OwnWatches are the watches that are this process's.
func (s *Self) OwnWatches(p *plan.Plan) []watcher.Watch {
	if !s.Shared() {
		return p.Watches
	}
	if !s.Triggers {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(p.Watches), func(w watcher.Watch) bool { return p.Hosts[w.Job] != s.Name })
}

// WatchedElsewhere says whether another node may watch the folder of a job.
func (s *Self) WatchedElsewhere(job string) bool {
	if !s.Shared() {
		return false
	}
	host, ok := s.Setup().Plan.Hosts[job]
	if !ok || host == "" { // what was left by a job that is gone: one node sees to it
		return !s.Leading()
	}
	return host != s.Name || !s.Triggers
}

// RefuseElsewhere refuses a file or folder of this machine where a job's runs are done on another one.
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

// SaveConfigHash tells the other nodes that this one has another configuration now.
func (s *Self) SaveConfigHash(ctx context.Context, cfg *config.Config) {
	m := s.Ledger.Nodes.Membership()
	if m == nil {
		return
	}
	if err := m.SetConfig(ctx, cfg.Sources.Alike()); err != nil && ctx.Err() == nil {
		s.Logger.Warn("the other nodes were not told of the new configuration", "error", err)
	}
}
