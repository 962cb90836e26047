package api

import "encoding/json"

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
