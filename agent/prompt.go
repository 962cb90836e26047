package agent

import (
	_ "embed"
	"fmt"
	"strings"

	"rouse/agent/tool"
)

// phasedInstructions says how to work with agent_step.
//
//go:embed phases.md
var phasedInstructions string

// placePrompt is what a model or a program is told of where it works.
func placePrompt(a Agent) string {
	if a.Mode == ModeNone {
		return "You have no file tools, and start no programs.\n"
	}

	told := fmt.Sprintf("Your working folder is %s; relative paths begin there.\n", a.Workdir)
	if a.HostFolder != "" {
		told += fmt.Sprintf("It is yours alone. What your work is about is in %s, which you can read and not change.\n", a.HostFolder)
	}
	return told
}

// systemPrompt is what a model is told before the task.
func systemPrompt(t *attempt) string {
	var s strings.Builder
	if text := strings.TrimSpace(t.agent.Instructions); text != "" {
		s.WriteString(text + "\n\n")
	}

	may := func(name string) bool { return tool.IsAllowed(t.agent.Allow, t.agent.Deny, name) }
	fmt.Fprintf(&s, "You are %s, an agent that works unattended: nobody reads along.", t.agent.Name)
	if t.phased() || may("clarify") {
		s.WriteString(" If you cannot go on without your owner's word, ask with clarify; the run then waits for the answer.")
	}
	switch {
	case t.phased():
		s.WriteString("\n" + phasedInstructions)
	case may("complete"):
		s.WriteString("\nDo the task with your tools, then call complete with a summary of what you did and what came of it.\n")
	default:
		s.WriteString("\nDo the task with your tools, then answer with a summary of what you did and what came of it.\n")
	}

	s.WriteString(placePrompt(t.agent))
	if t.agent.HostFolder != "" {
		s.WriteString("Make what you hand over in your working folder, and share it with share_artifact.\n")
	}
	s.WriteString(t.project)
	if t.clock != "" {
		s.WriteString(t.clock + clockNote)
	}
	s.WriteString(triggerPrompt(t))
	return s.String()
}
