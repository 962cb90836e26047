package agent

import (
	"runtime"
	"sync"

	"rouse/agent/sandbox"
	"rouse/agent/tool"
	"rouse/agent/tool/shell"
)

// programs start the programs of all runs: one sandbox for the agents that are confined, one for
// each reason not to be, and lanes for all.
type programs struct {
	lanes *shell.Lanes

	mu    sync.Mutex
	boxes map[string]*sandbox.Sandbox // by the reason that is given for none, "" for confined
}

func newPrograms() (*programs, error) {
	lanes, err := shell.NewLanes(max(2, runtime.NumCPU()))
	return &programs{lanes: lanes, boxes: map[string]*sandbox.Sandbox{}}, err
}

// box is the sandbox for agents whose owner gives a reason not to confine them, "" for all others.
func (p *programs) box(unconfined string) (*sandbox.Sandbox, error) {
	p.mu.Lock()
	defer p.mu.Unlock()

	if b, ok := p.boxes[unconfined]; ok {
		return b, nil
	}

	b, err := sandbox.New(sandbox.Options{Off: unconfined})
	if err == nil {
		p.boxes[unconfined] = b
	}
	return b, err
}

// host is what starts the programs of a task.
func (p *programs) host(t task, roots *tool.Roots) (*shell.Host, error) {
	box, err := p.box(t.agent.Unconfined)
	if err != nil {
		return nil, err
	}
	return &shell.Host{Sandbox: box, Lanes: p.lanes, Roots: roots, Min: sandbox.Tier(t.minTier())}, nil
}
