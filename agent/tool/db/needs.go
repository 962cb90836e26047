package db

import (
	"context"
	"encoding/json"

	"rouse/agent/tool"
)

// needs tell the gate whether a tool shows rows, which are as trusted as the runs that wrote
// them, and whether it keeps something for later runs.
func (o Options) needs(shows, keeps bool) func(context.Context, tool.Invocation, json.RawMessage) (tool.Need, error) {
	return func(ctx context.Context, _ tool.Invocation, _ json.RawMessage) (n tool.Need, err error) {
		n.Keeps = keeps
		if shows {
			n.Adds, err = o.Roots.MemoryTaint(ctx)
		}
		return n, err
	}
}
