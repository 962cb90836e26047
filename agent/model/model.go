// Package model defines the messages between the loop and the adapters of language models.
//
// # Design
//
// The package has types and one interface, and no transport. A Provider answers a Request with a
// stream of Events. Text arrives as it is generated. A call is sent only when it is complete, so
// that a broken stream never executes half a call. Messages are neutral JSON, so that another
// adapter can continue a transcript.
//
// A failure of the model is an *Error, which reports whether the same request may succeed later. A
// caller that receives an *Error must discard the text and the calls that were sent before it.
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

// Role is the author of a message.
type Role string

// Roles of messages.
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
	Calls  []Call          `json:"calls,omitempty"`   // set for RoleAssistant
	CallID string          `json:"call_id,omitempty"` // set for RoleTool: the call whose envelope is Text
	Name   string          `json:"name,omitempty"`    // set for RoleTool: the name of the tool
	Images []Image         `json:"images,omitempty"`  // for RoleUser and RoleTool, in addition to Text
	Raw    json.RawMessage `json:"raw,omitempty"`     // opaque; only the adapter that wrote it reads it
}

// Call is a tool call requested by a model.
type Call struct {
	ID   string          `json:"id"`
	Key  string          `json:"key,omitempty"` // stable across attempts; "" if the loop has to assign it
	Name string          `json:"name"`
	Args json.RawMessage `json:"args"`
}

// NewCallID returns an id for a call whose own id is missing or taken.
func NewCallID() string {
	var b [12]byte
	_, _ = rand.Read(b[:]) // never fails
	return "call_" + hex.EncodeToString(b[:])
}

// Tool declares a tool to a model.
type Tool struct {
	Name, Description string
	// Schema describes the arguments. Each schema has one type, and optionally a description, enum
	// (of strings), items, properties and required. Empty means no arguments.
	Schema json.RawMessage
}

// ArgumentSchema returns the schema of the arguments. It is never empty.
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
	Cached      int64 `json:"cached,omitempty"`       // part of Input read from the provider's cache
	Written     int64 `json:"written,omitempty"`      // part of Input written to the cache, if that costs extra
	WrittenLong int64 `json:"written_long,omitempty"` // part of Written kept for an hour, at a higher price
}

// Add returns the sum of two usages.
func (u Usage) Add(o Usage) Usage {
	return Usage{u.Input + o.Input, u.Output + o.Output, u.Cached + o.Cached, u.Written + o.Written, u.WrittenLong + o.WrittenLong}
}

// Unreported describes possible costs of a turn in addition to its reported Usage.
type Unreported struct {
	Requests int   `json:"requests,omitempty"` // requests that the server received and did not reject
	Bytes    int   `json:"bytes,omitempty"`    // size of their answers, as far as they arrived
	Begun    Usage `json:"begun,omitzero"`     // usage reported so far for the last of them
}

// Retried describes the failed requests of a turn that succeeded later.
type Retried struct {
	Times int
	Last  string // why the last request failed; never contains a key
}

// Result is a call with the envelope that the tool returned.
type Result struct {
	Call     Call
	Envelope json.RawMessage
}

// Request is a request for one turn.
type Request struct {
	System      string
	Messages    []Message
	Tools       []Tool
	MaxOutput   int // tokens; 0 means the model's default
	Temperature *float64
	Results     []Result // results of the last step, untrimmed
	NoTools     bool     // the answer must be text, regardless of Tools
	// KeepTools means that the next run with the same tools is more than CacheMinutes away, but
	// within CacheHour.
	KeepTools bool
	// KeepAll means that the next turn is more than CacheMinutes away, but within CacheHour.
	KeepAll bool
}

// Providers cache a request for CacheMinutes, or at a higher price for CacheHour.
const (
	CacheMinutes = 5 * time.Minute
	CacheHour    = time.Hour
)

// WorthKeeping reports whether a request after this time finds only entries cached for an hour.
func WorthKeeping(after time.Duration) bool { return after > CacheMinutes && after <= CacheHour }

// Reasons in Event.Stop. An unknown reason of a server is passed on unchanged.
const (
	StopDone    = "stop"           // the answer is complete
	StopCalls   = "tool_calls"     // the model expects the results of its calls
	StopLength  = "length"         // the answer reached MaxOutput or the model's limit
	StopFilter  = "content_filter" // the provider's content filter withheld the rest
	StopRefusal = "refusal"        // the model declined; the text gives the reason
)

// Event is a part of an answer. Exactly one field is set.
type Event struct {
	Text  string
	Call  *Call
	Usage *Usage
	// Unreported is sent once if the turn failed or may have cost more than its Usage.
	Unreported *Unreported
	// Retried is sent if the turn succeeded after failed requests.
	Retried *Retried
	Stop    string
	Raw     json.RawMessage // must go back to the adapter as Message.Raw of this answer
	End     *End
}

// End ends the run. It comes from playbooks and modules, never from a model.
type End struct {
	Outcome        domain.Outcome
	Summary, Error string
	// Kind is a short name of the error that does not depend on its details. "" if unknown.
	Kind string
}

// Provider answers requests. The sequence can be used once, and an error is its last element.
type Provider interface {
	Stream(ctx context.Context, r Request) iter.Seq2[Event, error]
}

// MaxImage is the maximum size of an image in a message, in bytes. Most providers accept less.
const MaxImage = 20 << 20

// Image is an image in a message.
type Image struct {
	Type string `json:"media_type"` // for example image/png
	Data []byte `json:"data"`       // base64 in JSON
}

// imageTypes are the media types that models support.
var imageTypes = []string{"image/png", "image/jpeg", "image/webp", "image/gif"}

// ImageType returns the media type of an image from its first bytes, or "" if it is not supported.
func ImageType(beginning []byte) string {
	if kind := http.DetectContentType(beginning); slices.Contains(imageTypes, kind) {
		return kind
	}
	return ""
}

// String returns the type and the size of an image.
func (i Image) String() string {
	if n := len(i.Data); n >= 1<<20 {
		return fmt.Sprintf("%s of %.1f MiB", i.Type, float64(n)/(1<<20))
	}
	return fmt.Sprintf("%s of %d KiB", i.Type, (len(i.Data)+1023)>>10)
}

// Listing describes the models of a server. It is obtained without running a model.
type Listing struct {
	Server string    // address without credentials
	Date   time.Time // the server's clock; zero if unknown

	// Known reports that the server listed its models, and so accepted the key if it needs one.
	Known  bool
	Has    bool     // the model is in the list
	Models []string // names of the models; optional if Has is set
	Window int      // maximum input of the model in tokens; 0 if unknown
	NoTool bool     // the server reports that the model cannot call tools
}

// Lister is a Provider that can list the models of its server. An error is an *Error.
type Lister interface {
	Provider
	List(ctx context.Context) (Listing, error)
}

// Price is the price of a model in USD per million tokens, which equals micro-USD per token.
type Price struct{ Input, Output, Cached float64 }

// maxTokens is the highest plausible token count of a server.
const maxTokens = 1 << 40

// Surcharges for writing input to the cache, as fractions of the input price.
const (
	cacheWriteSurcharge = 0.25 // for CacheMinutes
	cacheHourSurcharge  = 1    // for CacheHour
)

// Cost returns the cost of a usage in micro-USD, rounded up. For impossible counts it assumes the
// most expensive interpretation.
func (p Price) Cost(u Usage) int64 {
	u = u.Clamped()
	surcharge := float64(u.Written-u.WrittenLong)*cacheWriteSurcharge + float64(u.WrittenLong)*cacheHourSurcharge
	cost := float64(u.Input-u.Cached)*p.Input + float64(u.Cached)*p.Cached + surcharge*p.Input + float64(u.Output)*p.Output
	if cost >= math.MaxInt64/2 {
		return math.MaxInt64 / 2
	}
	// Decimal prices are not exact as floats. An error below 1e-6 must not round up.
	return int64(math.Ceil(cost - 1e-6))
}

// Free reports whether the model costs nothing.
func (p Price) Free() bool { return p == Price{} }

// Clamped returns the usage with impossible counts replaced.
func (u Usage) Clamped() Usage {
	within := func(n, most int64) int64 { return min(max(n, 0), most) }
	u.Input, u.Output = within(u.Input, maxTokens), within(u.Output, maxTokens)
	// No cached tokens is the most expensive interpretation.
	if u.Cached > u.Input {
		u.Cached = 0
	}

	u.Cached = within(u.Cached, u.Input)
	u.Written = within(u.Written, u.Input-u.Cached)
	u.WrittenLong = within(u.WrittenLong, u.Written)
	return u
}
