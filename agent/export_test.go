package agent

import (
	"rouse/agent/runlog"
	"rouse/internal/ledger"
)

// NewRecorder returns the recorder of one attempt. asks reports whether each step asks a model.
func NewRecorder(l *ledger.Ledger, a ledger.Attempt, secrets []string, asks bool) *runlog.Recorder {
	return runlog.NewRecorder(l.Steps.Record, a, redactor(secrets), asks)
}
