package api

import (
	"encoding/json"
	"fmt"
	"time"

	"rouse/internal/domain"
	"rouse/internal/text"
)

// Item is an inbox item that waits for a person.
type Item struct {
	ID      string   `json:"id"`
	Run     string   `json:"run"`
	Runs    []string `json:"runs"` // runs that ask the same question, the item's run first
	Job     string   `json:"job"`
	Agent   string   `json:"agent"`
	Kind    string   `json:"kind"`
	Title   string   `json:"title"`
	Message string   `json:"message"`
	// Options are the possible answers. If it is empty, any text is allowed.
	Options  []string `json:"options,omitempty"`
	Multiple bool     `json:"allow_multiple"` // several options may be chosen
	// InputSchema is the JSON Schema of an answer with several values.
	InputSchema json.RawMessage `json:"input_schema,omitempty"`
	Action      string          `json:"action"`                 // for an approval, the exact action; otherwise the command that answers the item
	Link        string          `json:"link,omitempty"`         // sign-in link, for items that require a sign-in
	LinkProblem string          `json:"link_problem,omitempty"` // why there is no link
	Tool        string          `json:"tool,omitempty"`
	Hash        string          `json:"hash,omitempty"` // hash of the action
	State       string          `json:"state"`          // open, answered, expired or withdrawn
	Answer      string          `json:"answer"`
	Reason      string          `json:"reason,omitempty"` // reason for a denial
	CreatedAt   Time            `json:"created_at"`
	ExpiresAt   Time            `json:"expires_at"`
}

// Answer answers an inbox item.
type Answer struct {
	Text   string `json:"text"`             // text, or JSON if the item has an input schema; a single value may be plain
	Reason string `json:"reason,omitempty"` // reason for a denial, shown to the agent
	Kind   string `json:"kind,omitempty"`   // kind the item must have; empty means any kind
	// All applies the answer to every run that asks the same question. Otherwise only the item's
	// run gets the answer: other scheduled runs end as skipped, and other runs keep waiting. A
	// denial always applies to all.
	All bool `json:"all,omitempty"`
	// Untrusted means that the answer may contain untrusted content. The run then gets the label A.
	Untrusted bool `json:"untrusted,omitempty"`
}

// Grant is a standing permission for an agent's runs. It is valid until the owner revokes it.
type Grant struct {
	ID        string `json:"id"`
	Agent     string `json:"agent"`
	Tool      string `json:"tool"` // empty for the definition of a job
	Action    string `json:"action"`
	Item      string `json:"item"` // inbox item in which the grant was given
	CreatedAt Time   `json:"created_at"`
}

// Label is a label on stored data. Runs that read the data get the label.
type Label struct {
	Kind  string `json:"kind"`  // file, table, database or workspace; a file can also be a directory with its contents
	Place string `json:"place"` // absolute path, AGENT/TABLE, AGENT, or AGENT/SKILL/NAME
	Label string `json:"label"` // A: untrusted content, B: private data
	Run   string `json:"run"`   // first labeled run that wrote there; empty if it belongs to another ledger
	At    Time   `json:"at"`
}

// ClearLabel removes a label from data that the owner has inspected. The data is either everything
// an agent stores, or a path with its contents.
type ClearLabel struct {
	Label string `json:"label"` // A or B
	Agent string `json:"agent,omitempty"`
	Path  string `json:"path,omitempty"` // absolute, without symbolic links
}

// Incident groups the failures of a job with the same kind of error, from the first failure to the
// next success.
type Incident struct {
	ID       string `json:"id"`
	Job      string `json:"job"` // empty for runs without a job, which are grouped by agent
	Agent    string `json:"agent"`
	Kind     string `json:"kind"`
	Failures int    `json:"failures"`
	Error    string `json:"error"` // error of the last failure
	FirstRun string `json:"first_run"`
	LastRun  string `json:"last_run"`
	OpenedAt Time   `json:"opened_at"`
	LastAt   Time   `json:"last_at"`
	Told     int    `json:"told"`      // number of notices sent
	AckedAt  Time   `json:"acked_at"`  // null if not acknowledged
	Note     string `json:"note"`      // note of the acknowledgment
	ClosedAt Time   `json:"closed_at"` // null if open
	ClosedBy string `json:"closed_by"` // run that succeeded
}

// Acknowledgement acknowledges an incident.
type Acknowledgement struct {
	Note string `json:"note,omitempty"`
}

// Of returns the job of the incident, or the agent if there is no job.
func (i Incident) Of() string {
	if i.Job == "" {
		return i.Agent
	}
	return i.Job
}

// Text describes the incident in one sentence.
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

// SignIn is the state of an agent's sign-in at a service for a skill. Tokens are never included.
type SignIn struct {
	Name      string   `json:"name"` // AGENT/SKILL/PROVIDER
	Agent     string   `json:"agent"`
	Skill     string   `json:"skill"`
	Provider  string   `json:"provider"`
	Service   string   `json:"service"` // display name of the service
	Status    string   `json:"status"`  // authorized, expired or unauthorized
	Scopes    []string `json:"scopes"`
	Since     Time     `json:"since"`
	ExpiresAt Time     `json:"expires_at"` // expiry of the current token
	Renews    bool     `json:"renews"`     // the token is renewed automatically
	Waiting   bool     `json:"waiting"`    // the owner has a sign-in link but has not finished
}

// SignInName identifies a sign-in.
type SignInName struct {
	Name string `json:"name"`
}
