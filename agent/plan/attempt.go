package plan

import (
	"rouse/agent/checkout"
	"rouse/agent/redact"
	"rouse/internal/ledger"
)

// Attempt is one attempt at a task, with the files and folders that it works with.
type Attempt struct {
	Task
	Try ledger.Attempt // its number and start

	Files    []BatchFile     // files of a batch
	Manifest string          // file that lists them
	Clone    *checkout.Clone // nil if the run works in the agent's workdir
	Received string          // folder for files from MCP servers; "" without servers
	BaseDir  string          // base of relative paths, for a replay; "" for the workdir
	// ModuleRedactor is the redactor of the module that executes the run. It also removes the
	// tokens that the module gets. Nil without a module.
	ModuleRedactor *redact.Redactor
}

// NewAttempt returns an attempt at a task.
func NewAttempt(t *Task, try ledger.Attempt) Attempt { return Attempt{Task: *t, Try: try} }

// Redactor returns the redactor of the module that executes the run, or else that of the plan.
func (t *Attempt) Redactor() *redact.Redactor {
	if t.ModuleRedactor != nil {
		return t.ModuleRedactor
	}
	return t.Task.Redactor()
}
