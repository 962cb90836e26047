package agent

import (
	"runtime"
	"sync"

	"rouse/agent/sandbox"
	"rouse/agent/tool"
	"rouse/agent/tool/file"
	"rouse/agent/tool/git"
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

// tools are those of a task that start programs.
func (p *programs) tools(t task, roots *tool.Roots, log file.Log) ([]tool.Tool, error) {
	box, err := p.box(t.agent.Unconfined)
	if err != nil {
		return nil, err
	}
	redact := redactor(t.secrets).Replace
	host := &shell.Host{Sandbox: box, Lanes: p.lanes, Roots: roots, Min: sandbox.Tier(t.minTier())}
	commands, err := shell.Tools(shell.Options{Host: host, Log: log, Grants: t.agent.Commands, More: t.allowed(), Allow: t.agent.Allow, Secrets: t.agent.Secrets, Redact: redact})
	if err != nil {
		return nil, err
	}
	repository, err := git.Tools(git.Options{Host: host, Folder: t.agent.Workdir, Allow: t.agent.Allow, Redact: redact})
	return append(commands, repository...), err
}
