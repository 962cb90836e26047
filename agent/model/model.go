// Package model defines the messages between the loop and the adapters of language models.
//
// # Design
//
// The package is pure: types and one interface, no transport. A Provider answers a Request
// with a stream of Events. Text arrives as it is generated; a call is sent only when it is
// complete, so that a broken stream never executes half a call. Messages are neutral JSON: another
// adapter can continue a transcript.
//
// A failure on the model's side is an *Error, which says whether the same request may succeed later;
// a caller that gets one discards everything that the stream sent before it.
package model

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"iter"
	"math"
	"net/http"
	"slices"
	"time"

	"rouse/internal/domain"
)

// Role says whose message it is.
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
	Images []Image         `json:"images,omitempty"`  // of a user or a tool, in addition to Text
	Raw    json.RawMessage `json:"raw,omitempty"`     // opaque to all but the adapter that wrote it
}

// Call is a tool invocation that a model asks for.
type Call struct {
	ID   string          `json:"id"`
	Key  string          `json:"key,omitempty"` // stable across attempts; "" if the loop has to assign it
	Name string          `json:"name"`
	Args json.RawMessage `json:"args"`
}

// NewCallID returns an id for a call whose own id is missing or taken (OSA-09).
func NewCallID() string {
	var b [12]byte
	_, _ = rand.Read(b[:]) // never fails
	return "call_" + hex.EncodeToString(b[:])
}

// Tool declares a tool to a model.
type Tool struct {
	Name, Description string
	// Schema describes the arguments: each schema has one type, and besides that only description,
	// enum (of strings), items, properties and required. Empty means no arguments.
	Schema json.RawMessage
}

// ArgumentSchema returns the schema of the arguments, which is never empty.
func (t Tool) ArgumentSchema() json.RawMessage {
	if len(t.Schema) == 0 {
		return json.RawMessage(`{"type":"object","properties":{}}`)
	}
	return t.Schema
}

// Usage counts the tokens of one turn.
type Usage struct {
	Input       int64 `json:"input,omitempty"`
	Output      int64 `json:"output,omitempty"`
	Cached      int64 `json:"cached,omitempty"`       // the part of Input that was read from the provider's cache
	Written     int64 `json:"written,omitempty"`      // the part of Input that was written to it, where that costs extra
	WrittenLong int64 `json:"written_long,omitempty"` // the part of Written that is kept for an hour, which costs more
}

// Add returns the sum of two usages.
func (u Usage) Add(o Usage) Usage {
	return Usage{u.Input + o.Input, u.Output + o.Output, u.Cached + o.Cached, u.Written + o.Written, u.WrittenLong + o.WrittenLong}
}

// Unreported is what a turn may have cost beyond the Usage that its server reported.
type Unreported struct {
	Requests int   `json:"requests,omitempty"` // that reached the server, and that it did not refuse
	Bytes    int   `json:"bytes,omitempty"`    // of their answers, as far as they arrived
	Begun    Usage `json:"begun,omitzero"`     // as far as the server had reported the last of them
}

// Retried are requests of one turn that failed before one succeeded.
type Retried struct {
	Times int
	Last  string // why the last of them failed; never holds a key
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
	KeepTools   bool     // the next run with the same tools is more than CacheMinutes away, and within CacheHour
	KeepAll     bool     // the next turn is that far
}

// Providers keep what they cache of a request for CacheMinutes, and at a higher price for CacheHour.
const (
	CacheMinutes = 5 * time.Minute
	CacheHour    = time.Hour
)

// WorthKeeping reports whether a request so long after another would find only what was cached for an hour.
func WorthKeeping(after time.Duration) bool { return after > CacheMinutes && after <= CacheHour }

// Reasons in Event.Stop. A reason of a server without a translation is passed on as it is.
const (
	StopDone    = "stop"           // the answer is complete
	StopCalls   = "tool_calls"     // it expects the results of its calls
	StopLength  = "length"         // it reached MaxOutput or its own limit
	StopFilter  = "content_filter" // the provider's content filter withheld the rest
	StopRefusal = "refusal"        // the model declined; the text says why
)

// Event is a part of an answer; one field is set.
type Event struct {
	Text  string
	Call  *Call
	Usage *Usage
	// Unreported comes once with a turn that failed, and with one that may have cost more than its Usage.
	Unreported *Unreported
	// Retried comes with a turn that succeeded after requests for it had failed.
	Retried *Retried
	Stop    string
	Raw     json.RawMessage // to be sent back to the adapter as Message.Raw of this answer
	End     *End
}

// End ends the run. No model sends it: a list of calls does, and a module.
type End struct {
	Outcome        domain.Outcome
	Summary, Error string
	Kind           string // of the error, in a few words that stay the same when the details do not; "" where nothing is known
}

// Provider answers requests. The sequence can be used once. Nothing follows an error.
type Provider interface {
	Stream(ctx context.Context, r Request) iter.Seq2[Event, error]
}

// MaxImage is the largest image of a message, in bytes (YOA-01). Most providers accept less.
const MaxImage = 20 << 20

// Image is an image in a message.
type Image struct {
	Type string `json:"media_type"` // like image/png
	Data []byte `json:"data"`       // in JSON base64
}

// imageTypes are those that models support.
var imageTypes = []string{"image/png", "image/jpeg", "image/webp", "image/gif"}

// ImageType returns the media type of an image by its first bytes, "" if it is not supported.
func ImageType(beginning []byte) string {
	if kind := http.DetectContentType(beginning); slices.Contains(imageTypes, kind) {
		return kind
	}
	return ""
}

// String describes an image by its type and size.
func (i Image) String() string {
	if n := len(i.Data); n >= 1<<20 {
		return fmt.Sprintf("%s of %.1f MiB", i.Type, float64(n)/(1<<20))
	}
	return fmt.Sprintf("%s of %d KiB", i.Type, (len(i.Data)+1023)>>10)
}

// Listing is what a server reports of its models, without running one.
type Listing struct {
	Server string    // its address, without credentials
	Date   time.Time // its clock; zero when it did not say

	Known  bool     // the server says which models it has, and so took the key, if it needs one
	Has    bool     // the model is among them
	Models []string // the others, for a model that is not
	Window int      // the most tokens that the model can read; 0 when it does not say
	NoTool bool     // the model cannot call tools, as its server says
}

// Lister is a Provider that can list the models of its server. An error is an *Error.
type Lister interface {
	Provider
	List(ctx context.Context) (Listing, error)
}

// Price is what a model costs, in USD per million tokens, which is micro-USD per token.
type Price struct{ Input, Output, Cached float64 }

// maxTokens bounds the token counts of a server that can be true.
const maxTokens = 1 << 40

// The surcharges for writing a part of the input to the cache, as parts of the price of the input.
const (
	cacheWriteSurcharge = 0.25 // for CacheMinutes
	cacheHourSurcharge  = 1    // for CacheHour
)

// Cost returns the cost of a usage in micro-USD, rounded up. Impossible counts are read as the most
// expensive that they may have meant.
func (p Price) Cost(u Usage) int64 {
	u = u.Clamped()
	surcharge := float64(u.Written-u.WrittenLong)*cacheWriteSurcharge + float64(u.WrittenLong)*cacheHourSurcharge
	cost := float64(u.Input-u.Cached)*p.Input + float64(u.Cached)*p.Cached + surcharge*p.Input + float64(u.Output)*p.Output
	if cost >= math.MaxInt64/2 {
		return math.MaxInt64 / 2
	}
	// Decimal prices are not exact as floats: an error below this must not round up.
	return int64(math.Ceil(cost - 1e-6))
}

// Free says that the model costs nothing.
func (p Price) Free() bool { return p == Price{} }

// Clamped is the usage with impossible counts replaced.
func (u Usage) Clamped() Usage {
	within := func(n, most int64) int64 { return min(max(n, 0), most) }
	u.Input, u.Output = within(u.Input, maxTokens), within(u.Output, maxTokens)
	// None cached is the most expensive reading.
	if u.Cached > u.Input {
		u.Cached = 0
	}

	u.Cached = within(u.Cached, u.Input)
	u.Written = within(u.Written, u.Input-u.Cached)
	u.WrittenLong = within(u.WrittenLong, u.Written)
	return u
}
