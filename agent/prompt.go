package agent

import (
	_ "embed"
	"fmt"
	"strings"
)

// inPhases says how to work with agent_step.
//
//go:embed phases.md
var inPhases string

// system is what a model is told before the task.
func system(t task) string {
	var s strings.Builder
	if text := strings.TrimSpace(t.agent.Instructions); text != "" {
		s.WriteString(text + "\n\n")
	}

	fmt.Fprintf(&s, "You are %s, an agent that works unattended: nobody reads along. If you cannot go on without your owner's word, ask with clarify; the run then waits for the answer.\n", t.agent.Name)
	if t.phased() {
		s.WriteString(inPhases)
	} else {
		s.WriteString("Do the task with your tools, then call complete with a summary of what you did and what came of it.\n")
	}

	fmt.Fprintf(&s, "Your working folder is %s; relative paths begin there.\n", t.agent.Workdir)
	s.WriteString(folder(t.agent.Workdir))
	s.WriteString(startedBy(t))
	return s.String()
}
