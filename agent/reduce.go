package agent

import (
	_ "embed"
	"fmt"

	"rouse/agent/loop"
	"rouse/agent/tool"
)

//go:embed reduce.md
var reduceText string

func reduceSpecs() tool.Specs { return tool.Specs{loop.ReduceSpec(reduceText)} }

// withReduce adds the tool that reads much and gives back little, where the agent may have it
// and has something to read with (OSA-24).
func withReduce(t task, granted *tool.Registry, _ []tool.Tool) (*tool.Registry, error) {
	if t.reducer == nil {
		return granted, nil
	}

	reduce, ok, err := t.reducer.Tool(granted, reduceText)
	if err != nil || !ok {
		return granted, err
	}
	if !tool.Permits(t.agent.Allow, t.agent.Deny, reduce.Name()) {
		return granted, nil
	}

	return granted.With(reduce)
}

// looking is what a model is told that finds something out for a run.
func looking(t task) string {
	return fmt.Sprintf(`You find something out for %s, an agent that works unattended. Look with your tools, then answer with a digest: only what was asked, with the names, figures and paths that matter, in at most 8,000 characters. Nothing but the digest is kept. Say what you could not find out, and make nothing up.
Your working folder is %s; relative paths begin there.
`, t.agent.Name, t.agent.Workdir)
}

// newReducer is nil where no model answers.
func newReducer(t task) *loop.Reducer {
	if !t.needsModel() {
		return nil
	}
	return &loop.Reducer{System: looking(t)}
}
