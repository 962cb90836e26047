package api

import (
	"strconv"

	"rouse/internal/ledger/incident"
	"rouse/internal/ledger/pause"
	"rouse/internal/ledger/wake"
)

// NewWake converts a wake of the ledger.
func NewWake(w wake.Wake) *Wake {
	return &Wake{At: At(w.At), Asked: At(w.AskedAt), Instructions: w.Instructions, ContextViews: append([]string{}, w.ContextViews...), Priority: w.Priority, OnMiss: w.OnMiss,
		ScheduledBy: w.ScheduledBy, Run: OptionalID(w.Run), Job: w.Job, Depth: w.Depth, CreatedAt: At(w.CreatedAt)}
}

// NewPause converts a pause of the ledger.
func NewPause(p pause.Pause) Pause {
	return Pause{Scope: p.Scope, Name: p.Name, Since: At(p.Since), Until: At(p.Until), Reason: p.Reason, By: p.By}
}

// NewIncident converts an incident of the ledger.
func NewIncident(i incident.Incident) Incident {
	out := Incident{ID: ID(i.ID), Job: i.Job, Agent: i.Agent, Kind: i.Kind, Failures: i.Failures, Error: i.Error, FirstRun: ID(i.FirstRun), LastRun: ID(i.LastRun),
		OpenedAt: At(i.OpenedAt), LastAt: At(i.LastAt), Told: i.Told, AckedAt: At(i.AckedAt), Note: i.Note, ClosedAt: At(i.ClosedAt), ClosedBy: OptionalID(i.ClosedBy)}
	if i.LastRun == 0 { // an incident without a run: no success in time
		out.FirstRun, out.LastRun = "", ""
	}
	return out
}

// ID returns an id of the ledger as the API has it: a decimal number in a string.
func ID(n int64) string { return strconv.FormatInt(n, 10) }

// OptionalID is ID, or "" if n is zero.
func OptionalID(n int64) string {
	if n == 0 {
		return ""
	}
	return ID(n)
}
