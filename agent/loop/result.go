package loop

import (
	"encoding/json"
	"strings"

	"rouse/agent/tool"
	"rouse/internal/domain"
)

// Result is how an attempt ended.
type Result struct {
	Exit           domain.Exit
	Outcome        domain.Outcome
	Summary, Error string
	Kind           string // of the error, as its provider calls it; "" where it says nothing
	Verified       bool
	Steps          int // turns that were asked of the model, charged or not; those of reductions, too
	Calls          int
	Answered       int // turns that a model answered
	Spent
	// Failure is the failure of a model that ended the run, nil where none did.
	Failure error
	// Wait is what the run asks a person, and Approval the call that needs one; Outcome is "" then.
	// That call was not made, nor was any other of the same answer.
	Wait     *Question
	Approval *tool.ApprovalRequest
}

// Question is what a run needs to know before it can continue (OSA-18).
type Question struct {
	Kind          string   `json:"kind,omitempty"`  // of an item in the inbox; "": input
	Title         string   `json:"title,omitempty"` // what it is about, in a line; "": nothing that the question does not say
	Question      string   `json:"question"`
	Options       []string `json:"options,omitempty"`
	AllowMultiple bool     `json:"allow_multiple,omitempty"`
	// InputSchema is the JSON Schema of the answer; nil: it is a text.
	InputSchema json.RawMessage `json:"input_schema,omitempty"`
	// Call is the key of the call that asked.
	Call string `json:"-"`
	// SignIn is the sign-in that it asks for, as AGENT/SKILL/PROVIDER; "": it asks for none.
	SignIn string `json:"sign_in,omitempty"`
}

// text returns the question and its options.
func (q *Question) text() string {
	var out strings.Builder
	out.WriteString(q.Question)
	for _, option := range q.Options {
		out.WriteString("\n- " + option)
	}
	return out.String()
}

// stop is a bound that was used up, as the cause of a cancelled context.
type stop struct {
	outcome domain.Outcome
	reason  string
}

func (s *stop) Error() string           { return s.reason }
func (s *stop) Outcome() domain.Outcome { return s.outcome }

// stepsUsedUp is a stop at the end of the steps.
type stepsUsedUp struct{ stop }

func (s *stepsUsedUp) Exit() domain.Exit { return domain.ExitIterationCap }
