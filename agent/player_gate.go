package agent

import (
	"context"
	"encoding/json"

	"rouse/agent/loop"
	"rouse/agent/model/replay"
	"rouse/agent/tool"
)

// Judge implements loop.Gate. What was refused has a recorded answer as every call has; where the
// recorded attempt waited for leave to make a call, there is none of it, and it waits again.
func (p *player) Judge(_ context.Context, in tool.Invocation, t tool.Tool, _ json.RawMessage) (tool.Verdict, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, made := p.calls[in.Key]; made || !p.attempt.Asked(replay.HeardApproval) {
		return tool.Verdict{}, nil
	}
	return tool.Verdict{Ask: &tool.Approval{Tool: t.Name(), Why: "the recorded run waited for leave here", Hash: tool.ActionHash(in.Agent, t.Name(), in.Key)}}, nil
}

// Admit implements loop.Gate.
func (p *player) Admit(context.Context) error { return nil }

var _ loop.Gate = (*player)(nil)
