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

// Limits of what is read.
const (
	maxLine  = 8 << 20 // bytes of a line; a longer one is skipped
	maxWhole = 8 << 20 // bytes of an output that is one document
	maxTurns = 500     // that are recorded
	maxCalls = 2000    // that are recorded
	maxText  = 64 << 10
)

// Reading is what a program has reported of its work so far. Nothing of it need be true.
type Reading struct {
	Dialect        string // who prints so; "" while nothing was recognised
	Model, Session string
	Turns, Calls   int
	Usage          model.Usage
	CostMicroUSD   int64
	CostKnown      bool   // it reported its cost
	CostWrong      string // the cost that it reported, if that cannot be true
	UsageWrong     bool   // it reported tokens that cannot be true
	Written        int64  // bytes that its model wrote: text, and arguments of calls
	Text           string
	Done           bool // it has said that it came to its end
	Failed         bool
	Why            string   // it failed, or was troubled, in its words
	Limit          string   // the limit of its own that ended it: turns, cost; "" for none
	Refused        []string // what its own permissions did not let it do
	Unavailable    bool     // its model cannot be asked just now
	RetryAt        time.Time
	Outcome        string // that it chose
	Question       string
	Garbled        int // lines that were not understood
}

// Listener is told of a program's work while it goes on. An error ends the program.
type Listener interface {
	Turn(ctx context.Context, t Turn) error
	Call(ctx context.Context, c Call) error
}

// Turn is an answer of the program's model.
type Turn struct{ Model, Text string }

// Call is a call of one of the program's own tools, as the program says.
type Call struct {
	Tool   string
	Args   json.RawMessage
	Result string
	Failed bool
}

// Reader reads the output of a program while it comes. It takes any bytes.
type Reader struct {
	Reading
	ctx      context.Context
	json     bool
	listener Listener
	failure  error           // of the listener
	check    func(Reading)   // called after each event; may be nil
	line     []byte          // the beginning of a line that is not whole
	skipping bool            // the rest of a line that is too long
	whole    []byte          // of an output that may be one document
	open     map[string]Call // calls that have no result yet, by the program's id
	order    []string        // of them
	told     int             // turns that the listener has heard of
	seen     map[string]bool // ids of messages whose usage was counted
	events   int             // that were recognised
	final    bool            // a final result arrived, and no turn or call after it
	said     string          // text of the last assistant message that has one
	pieces   strings.Builder // of an answer that comes in pieces
	last     fields          // the last object without a known type
	now      func() time.Time
	zone     *time.Location // of the program
	limits   []Limit        // of the configuration
}

// NewReader reads JSON or, with asJSON false, only counts bytes: the text of a program is its
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

// event reads one line. Lines that are not objects are messages beside the JSON.
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

// Close reads what is left, once the program has ended.
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

// readWhole reads the output as one document, after any lines before it.
func (r *Reader) readWhole() {
	all := bytes.TrimSpace(r.whole)
	for len(all) > 0 && all[0] != '{' && all[0] != '[' {
		at := bytes.IndexByte(all, '\n')
		if at < 0 {
			return
		}
		all = bytes.TrimSpace(all[at+1:])
	}

	if items := list(all); items != nil { // events, as a list
		r.Garbled = 0 // its lines were none
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
	// Not by Turns: of one turn a program can say more without end.
	if r.listener != nil && r.failure == nil && r.told < maxTurns {
		r.told++
		r.failure = r.listener.Turn(r.ctx, Turn{r.Model, clip(said, maxText)})
	}
}

// openCall records a call that has begun. A call before any turn begins one without text.
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
		args, _ = json.Marshal(map[string]string{"said": clip(string(args), maxText)}) //nolint:errchkjson // a map of texts
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

// cost records the cost that the program reports. An impossible one counts as not reported.
func (r *Reader) cost(d dollars) {
	if d.wrong != "" {
		r.CostWrong = d.wrong
	}
	if d.known {
		r.CostMicroUSD, r.CostKnown = int64(math.Ceil(d.usd*1e6-1e-6)), true
	}
}

// maxTokens bounds the credible tokens of one report.
const maxTokens = 1_000_000_000

// plausible returns a report of tokens, or none if it cannot be true.
func (r *Reader) plausible(u model.Usage) model.Usage {
	if u = u.Clamped(); u.Input > maxTokens || u.Output > maxTokens {
		r.UsageWrong = true
		return model.Usage{}
	}
	return u
}

// addUsage adds a report of tokens.
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

// clip cuts a text at a number of bytes, and removes everything that may not be shown.
func clip(s string, most int) string {
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return text.Clean(s)
}

// fields is an object in the output of a program. A value that is missing or has an unexpected form
// is zero. Nil if the value is not an object.
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

// maxCount bounds a credible number of tokens or turns.
const maxCount = 1 << 40

func (f fields) count(key string) int64 {
	n, _ := number(f[key])
	return int64(min(max(n, 0), maxCount))
}

// maxDollars bounds the credible cost of one run.
const maxDollars = 10_000

// dollars is an amount in USD.
type dollars struct {
	usd   float64
	known bool
	wrong string // an impossible value
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
