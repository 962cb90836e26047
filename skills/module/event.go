package module

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// Surface defines the members of `host` in a VM. Other members are undefined. Names are paths below
// host, such as llm.complete.
type Surface struct {
	// Methods return a promise and produce a [Call]. The exceptions are log and log.*, which return
	// immediately and produce a [Log]. Each of them makes host.log callable and an object with the
	// methods debug, info, warn and error. The answer of network.fetch must be a [Response].
	Methods []string
	// Blocking lists methods whose calls block the module until the host answers, even if the
	// module does not await the promise. Such a call is the last one in its [Event].
	Blocking []string `json:",omitempty"`
	// Getters are functions that return a value immediately, such as run.getStepCount and
	// run.getStepBudget. [Answer].Getters can replace the values.
	Getters map[string]json.RawMessage `json:",omitempty"`
	// Constants are frozen values: skillId, executionId and config.
	Constants map[string]json.RawMessage `json:",omitempty"`
}

// Response is the answer to network.fetch. A module sees it with the property ok and the methods
// text(), json() and arrayBuffer(). Its headers are a Headers object.
type Response struct {
	URL        string            `json:"url"`
	Status     int               `json:"status"`
	StatusText string            `json:"statusText"`
	Headers    map[string]string `json:"headers"`
	Body       string            `json:"body"`                 // body as text
	BodyBase64 string            `json:"bodyBase64,omitempty"` // body bytes, if they are not text
}

// Event is the activity of a module until it had to wait. An event with an End is the last one. The
// module does not wait for the calls in that event.
type Event struct {
	Calls []Call `json:",omitempty"` // new calls, in call order
	Logs  []Log  `json:",omitempty"`
	End   *End   `json:",omitempty"`
}

// maxWaiting is the maximum number of unanswered calls.
const maxWaiting = 1000

// check returns an error if a module cannot have caused the event, because a compromised process
// can send any data. last is the ID of the previous call.
func (e *Event) check(methods []string, last int) error {
	if len(e.Calls) > maxWaiting {
		return fmt.Errorf("it made %d calls at a time, and %d are the most", len(e.Calls), maxWaiting)
	}

	for _, c := range e.Calls {
		if last++; c.ID != last || !slices.Contains(methods, c.Method) || !bytes.HasPrefix(c.Args, []byte("[")) {
			return fmt.Errorf("it made a call that it cannot make: %.100q", c.Method)
		}
	}

	if e.End != nil && !slices.Contains([]EndStatus{Returned, Threw, TimedOut, Memory, Crashed, Stalled}, e.End.Status) {
		return fmt.Errorf("it ended in no way that is known: %.100q", e.End.Status)
	}
	return nil
}

// Call is a call to a method of `host`.
type Call struct {
	ID     int // counts from 1
	Method string
	Args   json.RawMessage // JSON array; bytes are {"$base64": "…"}, functions null
}

// Answer settles the promise of a call.
type Answer struct {
	ID    int
	Value json.RawMessage // result; empty means undefined
	Error *CallError      // rejects the promise instead
	Now   time.Time       // new time of the module's clock; zero leaves it unchanged
	// Getters are new values for Getters of the surface.
	Getters map[string]json.RawMessage
}

// CallError is an Error in the module with these properties.
type CallError struct {
	Name    string // "Error" if empty
	Message string
	Code    string `json:",omitempty"`
}

// Log is a log line of a module.
type Log struct {
	Source string // "console", or "host" for host.log
	Level  string // debug, info, warn or error
	Text   string
}

// EndStatus is the way in which a module ended.
type EndStatus string

// The ways in which a module ends.
const (
	Returned EndStatus = "returned"
	// Threw includes invalid programs and results that are too large or not JSON.
	Threw    EndStatus = "threw"
	TimedOut EndStatus = "timeout" // exceeded its execution time
	Memory   EndStatus = "memory"  // exceeded its memory limit
	Crashed  EndStatus = "crashed" // its process exited
	// Stalled modules wait for a promise although there is no pending call or timer.
	Stalled EndStatus = "stalled"
)

// End describes the end of a module.
type End struct {
	Status EndStatus
	Value  json.RawMessage `json:",omitempty"` // return value; empty means undefined
	Error  string          `json:",omitempty"` // "Name: message" of an exception, or another reason
	Stack  string          `json:",omitempty"` // calls, one per line, with source lines
}

func (e *End) String() string {
	if e.Error == "" {
		return string(e.Status)
	}
	return fmt.Sprintf("%s: %s", e.Status, e.Error)
}
