package api

import (
	"fmt"
	"time"

	"rouse/internal/domain"
	"rouse/internal/text"
)

// Incident is a job and a kind of error that it fails with, from the first failure to the next success.
type Incident struct {
	ID       string `json:"id"`
	Job      string `json:"job"` // "" of runs that belong to no job; they are found by their agent
	Agent    string `json:"agent"`
	Kind     string `json:"kind"`
	Failures int    `json:"failures"`
	Error    string `json:"error"` // of the last failure
	FirstRun string `json:"first_run"`
	LastRun  string `json:"last_run"`
	OpenedAt Time   `json:"opened_at"`
	LastAt   Time   `json:"last_at"`
	Told     int    `json:"told"`      // notices of it
	AckedAt  Time   `json:"acked_at"`  // null: nobody has acknowledged it
	Note     string `json:"note"`      // of who did
	ClosedAt Time   `json:"closed_at"` // null: it is open
	ClosedBy string `json:"closed_by"` // the run that succeeded
}

// Acknowledgement says that somebody knows of an incident.
type Acknowledgement struct {
	Note string `json:"note,omitempty"`
}

// Of is whose incident it is: a job, or an agent.
func (i Incident) Of() string {
	if i.Job == "" {
		return i.Agent
	}
	return i.Job
}

// Text is an incident in words, for whoever sees its job.
func (i Incident) Text(zone *time.Location) string {
	out := fmt.Sprintf("incident %s: %s, %s since %s", i.ID, i.Kind, text.Plural(i.Failures, domain.IncidentUnit(i.Kind, "failure")), LocalTime(i.OpenedAt.Time, zone))
	switch {
	case !i.ClosedAt.IsZero():
		return out + "; over since " + LocalTime(i.ClosedAt.Time, zone)
	case !i.AckedAt.IsZero() && i.Note != "":
		return out + "; acknowledged: " + i.Note
	case !i.AckedAt.IsZero():
		return out + "; acknowledged"
	}
	return out + "; to hear no more of it: rouse ack " + i.ID
}
