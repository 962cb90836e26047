package agent

import (
	"runtime"
	"sync"

	"rouse/agent/sandbox"
	"rouse/agent/tool"
	"rouse/agent/tool/shell"
)

// programHosts start the programs of all runs: one sandbox for the agents that are confined, one for
// each reason not to be, and lanes for all.
type programHosts struct {
	lanes *shell.Limiter

	mu        sync.Mutex
	sandboxes map[string]*sandbox.Sandbox // by the reason that is given for none, "" for confined
}

func newPrograms() (*programHosts, error) {
	lanes, err := shell.NewLimiter(max(2, runtime.NumCPU()))
	return &programHosts{lanes: lanes, sandboxes: map[string]*sandbox.Sandbox{}}, err
}

// sandboxFor is the sandbox for agents whose owner gives a reason not to confine them, "" for all others.
func (p *programHosts) sandboxFor(unconfined string) (*sandbox.Sandbox, error) {
	p.mu.Lock()
	defer p.mu.Unlock()

	if b, ok := p.sandboxes[unconfined]; ok {
		return b, nil
	}

	// A failure is not kept: the next run tries again.
	b, err := sandbox.New(sandbox.Options{OffReason: unconfined})
	if err == nil {
		p.sandboxes[unconfined] = b
	}
	return b, err
}

// host is what starts the programs of a task.
func (p *programHosts) host(t task, roots *tool.Roots) (*shell.Launcher, error) {
	box, err := p.sandboxFor(t.agent.Unconfined)
	if err != nil {
		return nil, err
	}
	return &shell.Launcher{Sandbox: box, Limiter: p.lanes, Roots: roots, MinTier: sandbox.Tier(t.minTier())}, nil
}
