package module

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// Surface is what `host` has in a machine (OSL-07, OSL-08). What is not listed does not exist there, and is undefined.
// Names are paths below host, such as llm.complete.
type Surface struct {
	// Methods return a promise, and become a [Call]. The exceptions are log and log.*, which return at
	// once and become a [Log]: each of these makes host.log callable and an object with debug, info,
	// warn and error. The answer of network.fetch is a [Response].
	Methods []string
	// Blocking are methods at whose calls the module stands still until the host has answered, whether the module
	// waits for the promise or not. Such a call is the last one of its [Event].
	Blocking []string `json:",omitempty"`
	// Getters are functions that answer at once, with a value that [Answer].Getters may replace:
	// run.getStepCount, run.getStepBudget.
	Getters map[string]json.RawMessage `json:",omitempty"`
	// Constants are frozen values: skillId, executionId, config.
	Constants map[string]json.RawMessage `json:",omitempty"`
}

// Response is the shape in which network.fetch is answered. A module sees it with ok, text(), json() and
// arrayBuffer(), and with headers as a Headers object.
type Response struct {
	URL        string            `json:"url"`
	Status     int               `json:"status"`
	StatusText string            `json:"statusText"`
	Headers    map[string]string `json:"headers"`
	Body       string            `json:"body"`                 // as text
	BodyBase64 string            `json:"bodyBase64,omitempty"` // the bytes, where they are no text
}

// Event is what a module did until it had to wait. With an End nothing comes after it; calls beside it were made
// and not waited for.
type Event struct {
	Calls []Call `json:",omitempty"` // new ones, in the order in which they were made
	Logs  []Log  `json:",omitempty"`
	End   *End   `json:",omitempty"`
}

// maxWaiting is how many calls can wait for their answers.
const maxWaiting = 1000

// check refuses what no module can cause, for a machine that was taken over can send anything. Last is the ID of the call
// before these.
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

// Call is a call of a method of `host`.
type Call struct {
	ID     int // counts from 1
	Method string
	Args   json.RawMessage // a JSON array; bytes are {"$base64": "…"}, functions null
}

// Answer settles the promise of a call.
type Answer struct {
	ID    int
	Value json.RawMessage // what it resolves to; undefined where it is empty
	Error *CallError      // what it rejects with, instead
	Now   time.Time       // the clock of the module from here on; zero leaves it as it is
	// Getters are new values of those of the surface.
	Getters map[string]json.RawMessage
}

// CallError is an Error in the module, with these properties.
type CallError struct {
	Name    string // "Error" where it is empty
	Message string
	Code    string `json:",omitempty"`
}

// Log is a line that a module wrote.
type Log struct {
	Source string // "console", or "host" for host.log
	Level  string // debug, info, warn, error
	Text   string
}

// EndStatus is how a module ended.
type EndStatus string

// The ends of a module.
const (
	Returned EndStatus = "returned"
	Threw    EndStatus = "threw"   // or it is no program, or its result is no JSON, or too large
	TimedOut EndStatus = "timeout" // its own time is over (OSL-10)
	Memory   EndStatus = "memory"  // it needed more than it was given
	Crashed  EndStatus = "crashed" // its process ended
	Stalled  EndStatus = "stalled" // it waits for what nobody will answer: no call, no timer
)

// End is the end of a module.
type End struct {
	Status EndStatus
	Value  json.RawMessage `json:",omitempty"` // what it returned; empty for undefined
	Error  string          `json:",omitempty"` // what it threw, as "Name: message", or what else happened
	Stack  string          `json:",omitempty"` // its calls, a line each, by the lines of the sources
}

func (e *End) String() string {
	if e.Error == "" {
		return string(e.Status)
	}
	return fmt.Sprintf("%s: %s", e.Status, e.Error)
}
