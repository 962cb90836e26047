package playbook

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"strings"

	"github.com/expr-lang/expr"

	"rouse/agent/model"
)

// maxEach bounds the items of one each.
const maxEach = 10_000

// Call is one entry of a playbook.
type Call struct {
	Name    string         // the tool
	With    map[string]any // its arguments: templates and expressions at any depth
	Save    string         // where its result goes
	If      string         // an expression; false skips the call
	Each    any            // a list, or an expression that gives one: the call is made for each item
	OnError string         // fail (default) or continue
	Line    int            // in the configuration, for messages
}

// Options are a playbook and what its templates can name.
type Options struct {
	Calls []Call
	Data  map[string]any
}

// Provider plays the calls, one a turn. It serves one attempt of one run.
type Provider struct {
	calls []Call
	data  map[string]any
	at    int   // the call that comes next
	items []any // of its each; nil when it has none or they are not known yet
	item  int
	last  *Call // whose result comes with the next request
	done  []string
}

// New returns the provider of one attempt.
func New(o Options) (*Provider, error) {
	if len(o.Calls) == 0 {
		return nil, fmt.Errorf("the playbook has no calls")
	}
	data := maps.Clone(o.Data)
	if data == nil {
		data = map[string]any{}
	}
	return &Provider{calls: o.Calls, data: data}, nil
}

// Stream implements model.Provider: one call, or the end.
func (p *Provider) Stream(_ context.Context, r model.Request) iter.Seq2[model.Event, error] {
	return func(yield func(model.Event, error) bool) {
		if p.last != nil {
			if end := p.take(r.Results); end != nil {
				yield(model.Event{End: end}, nil)
				return
			}
		}
		call, err := p.nextCall()
		switch {
		case err != nil:
			yield(model.Event{End: &model.End{Outcome: "error", Error: err.Error()}}, nil)
		case call == nil:
			summary := strings.Join(p.done, "; ")
			if summary == "" {
				summary = "nothing to do: every call was skipped"
			}
			yield(model.Event{End: &model.End{Outcome: "success", Summary: summary}}, nil)
		default:
			yield(model.Event{Call: call}, nil)
		}
	}
}

// label names a call in messages.
func (p *Provider) label(i int) string {
	c := p.calls[i]
	if c.Line > 0 {
		return fmt.Sprintf("call %d (%s, line %d)", i+1, c.Name, c.Line)
	}
	return fmt.Sprintf("call %d (%s)", i+1, c.Name)
}

// take learns the result of the call that was made; it returns how the run ends when that
// call failed and may not.
func (p *Provider) take(results []model.Result) *model.End {
	c := *p.last
	p.last = nil
	var envelope struct {
		OK            bool
		Kind, Message string
		Result        json.RawMessage
	}
	if len(results) == 0 || json.Unmarshal(results[len(results)-1].Envelope, &envelope) != nil {
		return &model.End{Outcome: "error", Error: fmt.Sprintf("%s gave no result", p.label(p.at))}
	}
	at := p.at
	p.advance()
	if !envelope.OK {
		if c.OnError != "continue" {
			return &model.End{Outcome: "error", Error: fmt.Sprintf("%s failed: %s: %s", p.label(at), envelope.Kind, envelope.Message)}
		}
		p.done = append(p.done, c.Name+" failed, as it may")
		return nil
	}
	result := decode(envelope.Result)
	if c.Save != "" {
		p.data[c.Save] = result
	}
	p.done = append(p.done, c.Name+said(result))
	return nil
}

// advance moves to the next item of an each, or to the next call.
func (p *Provider) advance() {
	if p.items != nil && p.item+1 < len(p.items) {
		p.item++
		return
	}
	p.at, p.items, p.item = p.at+1, nil, 0
	delete(p.data, "item")
	delete(p.data, "index")
}

// nextCall finds the next call that is to be made; nil after the last.
func (p *Provider) nextCall() (*model.Call, error) {
	for p.at < len(p.calls) {
		c := &p.calls[p.at]
		if c.Each != nil && p.items == nil {
			items, err := p.each(c)
			if err != nil {
				return nil, err
			}
			if p.items = items; len(items) == 0 {
				p.advance()
				continue
			}
		}
		key := fmt.Sprintf("p%d", p.at+1)
		if p.items != nil {
			p.data["item"], p.data["index"] = p.items[p.item], p.item
			key = fmt.Sprintf("%s.%d", key, p.item+1)
		}
		wanted, err := p.wanted(c)
		if err != nil {
			return nil, err
		}
		if !wanted {
			p.done = append(p.done, c.Name+" skipped")
			p.advance()
			continue
		}
		args, err := p.arguments(c)
		if err != nil {
			return nil, err
		}
		p.last = c
		return &model.Call{ID: key, Key: key, Name: c.Name, Args: args}, nil
	}
	return nil, nil
}

func (p *Provider) wanted(c *Call) (bool, error) {
	if c.If == "" {
		return true, nil
	}
	v, err := evaluate("if of "+p.label(p.at), c.If, p.data)
	if err != nil {
		return false, err
	}
	b, ok := v.(bool)
	if !ok {
		return false, fmt.Errorf("if of %s gives %v, which is neither true nor false", p.label(p.at), v)
	}
	return b, nil
}

func (p *Provider) each(c *Call) ([]any, error) {
	v, err := value("each of "+p.label(p.at), c.Each, p.data)
	if err != nil {
		return nil, err
	}
	items, ok := v.([]any)
	if !ok {
		return nil, fmt.Errorf("each of %s gives %T, which is not a list", p.label(p.at), v)
	}
	if len(items) > maxEach {
		return nil, fmt.Errorf("each of %s gives %d items, more than %d", p.label(p.at), len(items), maxEach)
	}
	if items == nil {
		items = []any{}
	}
	return items, nil
}

func (p *Provider) arguments(c *Call) (json.RawMessage, error) {
	if len(c.With) == 0 {
		return json.RawMessage("{}"), nil
	}
	v, err := value(p.label(p.at)+" with", c.With, p.data)
	if err != nil {
		return nil, err
	}
	args, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("the arguments of %s cannot be written as JSON: %w", p.label(p.at), err)
	}
	return args, nil
}

// decode reads a result so that whole numbers stay whole.
func decode(raw json.RawMessage) any {
	var v any
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	if dec.Decode(&v) != nil {
		return nil
	}
	return plain(v)
}

func plain(v any) any {
	switch v := v.(type) {
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return int(n)
		}
		f, err := v.Float64()
		if err != nil {
			return v.String()
		}
		return f
	case []any:
		for i := range v {
			v[i] = plain(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = plain(v[k])
		}
	}
	return v
}

// said is what a result tells in a few words.
func said(result any) string {
	m, ok := result.(map[string]any)
	if !ok {
		return ""
	}
	if n, ok := m["rows_imported"]; ok {
		return fmt.Sprintf(": %v rows into %v", n, m["table"])
	}
	if rows, ok := m["rows"].([]any); ok {
		return fmt.Sprintf(": %d rows", len(rows))
	}
	if n, ok := m["count"]; ok {
		return fmt.Sprintf(": %v rows", n)
	}
	for _, key := range []string{"title", "path", "text", "id"} {
		if v, ok := m[key]; ok {
			text := []rune(fmt.Sprint(v))
			return ": " + string(text[:min(len(text), 60)])
		}
	}
	return ""
}

// Check finds what is wrong with a playbook before it runs; data are the names that every
// run of it has.
func Check(calls []Call, names []string) []error {
	known := map[string]any{}
	for _, n := range names {
		known[n] = nil
	}
	var problems []error
	p := &Provider{calls: calls}
	for i, c := range calls {
		bad := func(err error) {
			if err != nil {
				problems = append(problems, fmt.Errorf("%s: %w", p.label(i), err))
			}
		}
		if c.Name == "" {
			problems = append(problems, fmt.Errorf("call %d has no call: with the name of a tool", i+1))
		}
		if c.OnError != "" && c.OnError != "fail" && c.OnError != "continue" {
			bad(fmt.Errorf("on_error %q is neither fail nor continue", c.OnError))
		}
		bad(checkExpression("if", c.If))
		checkValue("each", c.Each, bad)
		checkValue("with", c.With, bad)
		if c.Save != "" {
			if _, taken := known[c.Save]; taken && isBuiltin(c.Save, names) {
				bad(fmt.Errorf("save %q hides a name that every run has", c.Save))
			}
			known[c.Save] = nil
		}
	}
	return problems
}

func isBuiltin(name string, names []string) bool {
	for _, n := range names {
		if n == name {
			return true
		}
	}
	return false
}

func checkExpression(where, text string) error {
	if text == "" {
		return nil
	}
	if _, err := expr.Compile(text, expr.AllowUndefinedVariables()); err != nil {
		return fmt.Errorf("the expression of %s is broken: %s", where, firstLine(err))
	}
	return nil
}

func checkValue(where string, v any, bad func(error)) {
	switch v := v.(type) {
	case string:
		if source, ok := strings.CutPrefix(v, "= "); ok {
			bad(checkExpression(where, source))
			return
		}
		bad(CheckTemplate(where, v))
	case []any:
		for i, item := range v {
			checkValue(fmt.Sprintf("%s[%d]", where, i), item, bad)
		}
	case map[string]any:
		for k, item := range v {
			checkValue(where+"."+k, item, bad)
		}
	}
}
