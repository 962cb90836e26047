// Package model is what the loop and the adapters of language models say to each other.
//
// # Design
//
// The package is pure: types and one interface, no transport. A Provider answers a Request
// with a stream of Events. Text arrives as it is made; a call is sent only when it is
// whole, so a broken stream never executes half a call. Messages are neutral JSON: a
// transcript that one adapter wrote another can continue.
//
// What fails on the model's side is an *Error, which says whether the same request may
// succeed later; a caller that sees one forgets everything the stream sent before it.
package model

import (
	"context"
	"encoding/json"
	"iter"

	"rouse/internal/domain"
)

// Role says who speaks.
type Role string

// The roles.
const (
	RoleSystem    Role = "system"
	RoleUser      Role = "user"
	RoleAssistant Role = "assistant"
	RoleTool      Role = "tool"
)

// Message is one entry of a transcript.
type Message struct {
	Role   Role            `json:"role"`
	Text   string          `json:"text,omitempty"`
	Calls  []Call          `json:"calls,omitempty"`   // of an assistant
	CallID string          `json:"call_id,omitempty"` // of a tool: the call whose envelope is Text
	Name   string          `json:"name,omitempty"`    // of a tool: its name
	Images []Image         `json:"images,omitempty"`  // of a user or a tool: shown beside Text
	Raw    json.RawMessage `json:"raw,omitempty"`     // opaque to all but the adapter that wrote it
}

// Call is a tool invocation that a model asks for.
type Call struct {
	ID   string          `json:"id"`
	Key  string          `json:"key,omitempty"` // stable across attempts; "" where only the loop can tell
	Name string          `json:"name"`
	Args json.RawMessage `json:"args"`
}

// Tool is what a model is told about a tool.
type Tool struct {
	Name, Description string
	Schema            json.RawMessage // JSON Schema of the arguments
}

// Usage counts the tokens of one turn.
type Usage struct {
	Input, Output int64
	Cached        int64 // the part of Input that was read from the provider's cache
	Written       int64 // the part of Input that went into it, where that costs extra
}

// Result is a call with its envelope as the tool gave it.
type Result struct {
	Call     Call
	Envelope json.RawMessage
}

// Request asks for one turn.
type Request struct {
	System      string
	Messages    []Message
	Tools       []Tool
	MaxOutput   int // tokens; 0 leaves it to the model
	Temperature *float64
	Results     []Result // the last step's, untrimmed
	NoTools     bool     // the answer must be text, whatever Tools holds
	Draft       *Draft   // of the conversation; nil: nothing is kept of it
}

// Why a model stopped, as Event.Stop says it. Other words are passed on as they came.
const (
	StopDone    = "stop"           // it had said everything
	StopCalls   = "tool_calls"     // it waits for the results of its calls
	StopLength  = "length"         // it reached MaxOutput or its own limit
	StopFilter  = "content_filter" // the provider withheld the rest
	StopRefusal = "refusal"        // it declined; the text says why
)

// Event is a part of an answer; one field is set.
type Event struct {
	Text  string
	Call  *Call
	Usage *Usage
	Stop  string
	Raw   json.RawMessage // what the adapter wants back as Message.Raw of this answer
	End   *End
}

// End ends the run. Only a playbook sends it.
type End struct {
	Outcome        domain.Outcome
	Summary, Error string
}

// Provider answers requests. The sequence is used once. It ends after the last event, or
// with an error that nothing follows.
type Provider interface {
	Stream(ctx context.Context, r Request) iter.Seq2[Event, error]
}
