package api

import (
	"encoding/json"
	"fmt"
	"time"

	"rouse/internal/domain"
	"rouse/internal/text"
)

// Item is something that waits for a person.
type Item struct {
	ID      string   `json:"id"`
	Run     string   `json:"run"`
	Runs    []string `json:"runs"` // that ask the same, the run of the item first
	Job     string   `json:"job"`
	Agent   string   `json:"agent"`
	Kind    string   `json:"kind"`
	Title   string   `json:"title"`
	Message string   `json:"message"`
	// Options are the answers to choose from. Without options, the answer is free.
	Options  []string `json:"options,omitempty"`
	Multiple bool     `json:"allow_multiple"` // several options may be chosen
	// InputSchema is the JSON Schema of an answer of several values.
	InputSchema json.RawMessage `json:"input_schema,omitempty"`
	Action      string          `json:"action"`                 // of an approval what would be done, exactly; else the command that answers it
	Link        string          `json:"link,omitempty"`         // where its owner signs in, of an item that asks for that
	LinkProblem string          `json:"link_problem,omitempty"` // why there is none
	Tool        string          `json:"tool,omitempty"`
	Hash        string          `json:"hash,omitempty"` // of the action
	State       string          `json:"state"`          // open, answered, expired, withdrawn
	Answer      string          `json:"answer"`
	Reason      string          `json:"reason,omitempty"` // of a denial
	CreatedAt   Time            `json:"created_at"`
	ExpiresAt   Time            `json:"expires_at"`
}

// Answer answers an item.
type Answer struct {
	Text   string `json:"text"`             // to an item with an input schema: JSON, or the one value that it asks for
	Reason string `json:"reason,omitempty"` // of a denial, for the agent
	Kind   string `json:"kind,omitempty"`   // of items that may be answered so; "" for any
	// All gives the answer to every run that asks the same. Without it the run of the item gets the answer, other scheduled runs end as
	// skipped, and runs of other triggers go on waiting. A denial is for all of them in any case.
	All bool `json:"all,omitempty"`
	// Untrusted says that whoever answers may repeat what strangers have written: the run has the label A from then on.
	Untrusted bool `json:"untrusted,omitempty"`
}

// Grant is what an owner has allowed an agent's runs until they revoke it.
type Grant struct {
	ID        string `json:"id"`
	Agent     string `json:"agent"`
	Tool      string `json:"tool"` // "" of a job's definition
	Action    string `json:"action"`
	Item      string `json:"item"` // of the inbox, in which it was given
	CreatedAt Time   `json:"created_at"`
}

// Label is a label on data, which a run has that reads it.
type Label struct {
	Kind  string `json:"kind"`  // file (or a folder, with all below it), table, database, workspace
	Place string `json:"place"` // an absolute path, AGENT/TABLE, AGENT, AGENT/SKILL/NAME
	Label string `json:"label"` // A untrusted, B private
	Run   string `json:"run"`   // the first that wrote there while it held the label; "": one of another ledger
	At    Time   `json:"at"`
}

// ClearLabel takes a label off what an owner has inspected: all that an agent keeps, or a path with all
// that lies below it.
type ClearLabel struct {
	Label string `json:"label"` // A or B
	Agent string `json:"agent,omitempty"`
	Path  string `json:"path,omitempty"` // absolute, without links
}

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

// SignIn is what is kept of a service that a skill signs in to for an agent; its tokens are shown to nobody.
type SignIn struct {
	Name      string   `json:"name"` // AGENT/SKILL/PROVIDER
	Agent     string   `json:"agent"`
	Skill     string   `json:"skill"`
	Provider  string   `json:"provider"`
	Service   string   `json:"service"` // as people call it
	Status    string   `json:"status"`  // authorized, expired, unauthorized
	Scopes    []string `json:"scopes"`
	Since     Time     `json:"since"`
	ExpiresAt Time     `json:"expires_at"` // of the token that is there
	Renews    bool     `json:"renews"`     // by itself
	Waiting   bool     `json:"waiting"`    // its owner was given a link, and did not come back yet
}

// SignInName names one.
type SignInName struct {
	Name string `json:"name"`
}
