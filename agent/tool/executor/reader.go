package executor

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"rouse/agent/model"
	"rouse/internal/text"
)

// Limits of the parsed output.
const (
	maxLine  = 8 << 20 // bytes of a line; a longer line is skipped
	maxWhole = 8 << 20 // bytes of an output that is a single document
	maxTurns = 500     // recorded turns
	maxCalls = 2000    // recorded calls
	maxText  = 64 << 10
)

// Reading holds the report of a program so far. All of it may be false.
type Reading struct {
	Dialect        string // form of the output; "" if it is not recognized
	Model, Session string
	Turns, Calls   int
	Usage          model.Usage
	CostMicroUSD   int64
	CostKnown      bool   // it reported its cost
	CostWrong      string // reported cost, if it is impossible
	UsageWrong     bool   // the reported tokens are impossible
	Written        int64  // bytes of text and call arguments that the model wrote
	Text           string
	Done           bool // the program reported its end
	Failed         bool
	Why            string   // reported failure or problem
	Limit          string   // the program's own limit that ended it: "turns" or "cost"; "" if there is none
	Refused        []string // calls that the program's own permissions refused
	Unavailable    bool     // the model cannot be used for now
	RetryAt        time.Time
	Outcome        string // reported outcome
	Question       string
	Garbled        int // number of lines that could not be parsed
}

// Listener receives the turns and calls of a program while it runs. An error stops the program.
type Listener interface {
	Turn(ctx context.Context, t Turn) error
	Call(ctx context.Context, c Call) error
}

// Turn is an answer of the program's model.
type Turn struct{ Model, Text string }

// Call is a call of one of the program's own tools, as reported by the program.
type Call struct {
	Tool   string
	Args   json.RawMessage
	Result string
	Failed bool
}

// Reader parses the output of a program while it runs. It accepts any input.
type Reader struct {
	Reading
	ctx      context.Context
	json     bool
	listener Listener
	failure  error           // error of the listener
	check    func(Reading)   // called after each event; optional
	line     []byte          // beginning of an incomplete line
	skipping bool            // skip the rest of a line that is too long
	whole    []byte          // output so far, which may be a single document
	open     map[string]Call // calls without a result, by the program's ID
	order    []string        // IDs of open calls in order
	told     int             // number of turns passed to the listener
	seen     map[string]bool // ids of messages whose usage was counted
	events   int             // number of recognized events
	final    bool            // a final result arrived, and no turn or call after it
	said     string          // text of the last message of the model that has one
	pieces   strings.Builder // pieces of an incomplete answer
	last     fields          // the last object without a known type
	now      func() time.Time
	zone     *time.Location // zone of the program
	limits   []Limit        // configured limits
}

// NewReader returns a Reader. If asJSON is false, it only counts bytes, because all output is the
// answer.
func NewReader(ctx context.Context, asJSON bool, l Listener, check func(Reading)) *Reader {
	return &Reader{ctx: ctx, json: asJSON, listener: l, check: check, open: map[string]Call{}, seen: map[string]bool{}, now: time.Now, zone: time.Local}
}

// Write implements io.Writer and never fails.
func (r *Reader) Write(p []byte) (int, error) {
	n := len(p)
	if !r.json {
		r.Written += int64(n)
		r.checkBounds()
		return n, nil
	}

	if room := maxWhole - len(r.whole); room > 0 {
		r.whole = append(r.whole, p[:min(room, len(p))]...)
	}
	for len(p) > 0 {
		at := bytes.IndexByte(p, '\n')
		if at < 0 {
			r.part(p)
			break
		}
		r.part(p[:at])
		r.endLine()
		p = p[at+1:]
	}
	return n, nil
}

// part adds to the current line.
func (r *Reader) part(p []byte) {
	if r.skipping {
		return
	}
	if len(r.line)+len(p) > maxLine {
		r.line, r.skipping = nil, true
		return
	}
	r.line = append(r.line, p...)
}

func (r *Reader) endLine() {
	line := bytes.TrimSpace(r.line)
	if r.skipping {
		r.Garbled++
	} else if len(line) > 0 {
		r.event(line)
	}
	r.line, r.skipping = r.line[:0], false
}

// event parses one line. It ignores lines that are not objects.
func (r *Reader) event(line []byte) {
	if line[0] != '{' {
		return
	}
	e := fieldsOf(line)
	if e == nil {
		r.Garbled++
		return
	}
	if kind := e.text("type"); r.claude(kind, e) || r.codex(kind, e) || r.gemini(kind, e) {
		r.events++
	} else {
		r.last = e
	}
	r.checkBounds()
}

func (r *Reader) checkBounds() {
	if r.check != nil {
		r.check(r.Reading)
	}
}

// Close parses the remaining output. Call it after the program has ended.
func (r *Reader) Close() Reading {
	if !r.json {
		return r.Reading
	}

	r.endLine()
	if r.events == 0 {
		r.readWhole()
	}
	for _, id := range slices.Clone(r.order) {
		r.closeCall(id, "", false)
	}
	if r.Done && !r.Failed && strings.TrimSpace(r.Text) == "" {
		r.Text = r.said
	}
	r.Text, r.Outcome, r.Question = splitWords(r.Text, r.Outcome, r.Question)
	return r.Reading
}

// readWhole parses the output as one document. It skips lines before the document.
func (r *Reader) readWhole() {
	all := bytes.TrimSpace(r.whole)
	for len(all) > 0 && all[0] != '{' && all[0] != '[' {
		at := bytes.IndexByte(all, '\n')
		if at < 0 {
			return
		}
		all = bytes.TrimSpace(all[at+1:])
	}

	if items := list(all); items != nil { // a list of events
		r.Garbled = 0 // the lines were not events
		for _, item := range items {
			r.event(item)
		}
	} else if json.Valid(all) {
		r.Garbled = 0
		r.event(all)
	}
	if r.events == 0 && r.last != nil && !r.geminiWhole(r.last) {
		r.plain(r.last)
	}
}

// turn records an answer of the model.
func (r *Reader) turn(modelName, said string) {
	r.Turns++
	r.final = false
	if strings.TrimSpace(said) != "" {
		r.said = said
	}
	r.Written += int64(len(said))
	if modelName != "" {
		r.Model = clip(modelName, 100)
	}
	// Do not limit this by Turns, because one turn can have any number of messages.
	if r.listener != nil && r.failure == nil && r.told < maxTurns {
		r.told++
		r.failure = r.listener.Turn(r.ctx, Turn{r.Model, clip(said, maxText)})
	}
}

// openCall records the start of a call. If there is no turn yet, it starts a turn without text.
func (r *Reader) openCall(id, name string, args json.RawMessage) {
	if r.Turns == 0 {
		r.turn("", "")
	}
	r.Calls++
	r.final = false
	r.Written += int64(len(args))
	if len(r.order) >= maxCalls {
		return
	}

	if !json.Valid(args) || len(args) > maxText {
		args, _ = json.Marshal(map[string]string{"said": clip(string(args), maxText)}) //nolint:errchkjson // a map of strings
	}
	if _, known := r.open[id]; !known {
		r.order = append(r.order, id)
	}
	r.open[id] = Call{Tool: clip(name, 60), Args: args}
}

// closeCall records the result of a call.
func (r *Reader) closeCall(id, result string, failed bool) {
	c, known := r.open[id]
	if !known {
		return
	}
	delete(r.open, id)
	r.order = slices.DeleteFunc(r.order, func(o string) bool { return o == id })

	c.Result, c.Failed = clip(result, 8<<10), failed
	if r.listener != nil && r.failure == nil && r.Calls <= maxCalls {
		r.failure = r.listener.Call(r.ctx, c)
	}
}

// cost records the cost that the program reports. It ignores an impossible cost.
func (r *Reader) cost(d dollars) {
	if d.wrong != "" {
		r.CostWrong = d.wrong
	}
	if d.known {
		r.CostMicroUSD, r.CostKnown = int64(math.Ceil(d.usd*1e6-1e-6)), true
	}
}

// maxTokens is the maximum credible number of tokens in one report.
const maxTokens = 1_000_000_000

// plausible returns a report of tokens, or a zero report if it is impossible.
func (r *Reader) plausible(u model.Usage) model.Usage {
	if u = u.Clamped(); u.Input > maxTokens || u.Output > maxTokens {
		r.UsageWrong = true
		return model.Usage{}
	}
	return u
}

// addUsage adds a report of tokens to the sum.
func (r *Reader) addUsage(u model.Usage) {
	u = r.plausible(u)
	r.Usage.Input, r.Usage.Output, r.Usage.Cached, r.Usage.Written = r.Usage.Input+u.Input, r.Usage.Output+u.Output, r.Usage.Cached+u.Cached, r.Usage.Written+u.Written
}

// total replaces the sum of tokens by the final report, unless the sum is larger.
func (r *Reader) total(u model.Usage) {
	u = r.plausible(u)
	if u.Input+u.Output >= r.Usage.Input+r.Usage.Output {
		r.Usage = u
	}
}

// finish records the final result of a program that prints events.
func (r *Reader) finish(answer string) {
	r.Done, r.final, r.Text = true, true, answer
}

// fail records that the program reports a failure.
func (r *Reader) fail(why string) {
	r.Failed = true
	if why = clip(strings.TrimSpace(why), 2000); why != "" {
		r.Why = why
	}
	r.noteLimit(r.Why)
}

// clip limits a text to a number of bytes, and removes control characters.
func clip(s string, most int) string {
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return text.Clean(s)
}

// fields is an object in the output of a program. A missing or malformed value is zero. Nil means
// that the value is not an object.
type fields map[string]json.RawMessage

func fieldsOf(raw json.RawMessage) (f fields) {
	if len(raw) == 0 || raw[0] != '{' || json.Unmarshal(raw, &f) != nil {
		return nil
	}
	return f
}

func (f fields) has(key string) bool { return len(f[key]) > 0 && string(f[key]) != "null" }

func (f fields) object(key string) fields { return fieldsOf(f[key]) }

// objects returns the objects of a list.
func (f fields) objects(key string) (out []fields) {
	for _, item := range list(f[key]) {
		if o := fieldsOf(item); o != nil {
			out = append(out, o)
		}
	}
	return out
}

func (f fields) text(key string) string { return textOf(f[key]) }

func (f fields) isTrue(key string) bool { return string(f[key]) == "true" }

// maxCount is the maximum credible number of tokens or turns.
const maxCount = 1 << 40

func (f fields) count(key string) int64 {
	n, _ := number(f[key])
	return int64(min(max(n, 0), maxCount))
}

// maxDollars is the maximum credible cost of one run.
const maxDollars = 10_000

// dollars is an amount in USD.
type dollars struct {
	usd   float64
	known bool
	wrong string // impossible value
}

func (f fields) dollars(key string) dollars {
	usd, ok := number(f[key])
	switch {
	case !f.has(key):
		return dollars{}
	case ok && usd >= 0 && usd <= maxDollars:
		return dollars{usd: usd, known: true}
	}
	return dollars{wrong: clip(string(f[key]), 40)}
}

func number(raw []byte) (float64, bool) {
	f, err := strconv.ParseFloat(strings.Trim(string(raw), `"`), 64)
	if err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
		return 0, false
	}
	return f, true
}

func textOf(raw json.RawMessage) (s string) {
	if json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return s
}

// list returns the items of a list, or nil.
func list(raw json.RawMessage) (out []json.RawMessage) {
	if len(raw) == 0 || raw[0] != '[' || json.Unmarshal(raw, &out) != nil {
		return nil
	}
	return out
}
