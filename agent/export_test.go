package agent

import "rouse/internal/ledger"

// NewRecorder returns the record of one attempt. asks: each step asks a model.
func NewRecorder(l *ledger.Ledger, a ledger.Attempt, secrets []string, asks bool) *Recorder {
	return newRecorder(l.Record, a, redactor(secrets), asks)
}
