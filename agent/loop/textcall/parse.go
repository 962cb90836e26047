package textcall

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// parse parses a text that consists of calls. fault is the reason one of them cannot be made.
func parse(text string, tools Tools) (calls []Call, fault string, ok bool) {
	r := &reader{text: text, tools: tools}
	if !r.all() {
		return nil, "", false
	}
	return r.calls, r.fault, true
}

// reader parses calls from the beginning of a text. Its methods return false on a mismatch.
type reader struct {
	text  string
	at    int
	tools Tools
	calls []Call
	fault string // reason one of the calls cannot be made
	depth int    // nesting depth of the current literal
}

// all parses calls up to the end of the text.
func (r *reader) all() bool {
	for r.space(); len(r.calls) == 0 || r.rest() != ""; r.space() {
		if !r.one() {
			return false
		}
	}
	return true
}

func (r *reader) rest() string { return r.text[r.at:] }

func (r *reader) space() bool {
	r.at = len(r.text) - len(strings.TrimLeft(r.rest(), " \t\r\n"))
	return true
}

// take consumes a token.
func (r *reader) take(token string) bool {
	if !strings.HasPrefix(r.rest(), token) {
		return false
	}
	r.at += len(token)
	return true
}

// match consumes the prefix that matches an expression, and returns its groups.
func (r *reader) match(expression *regexp.Regexp) []string {
	found := expression.FindStringSubmatch(r.rest())
	if found != nil {
		r.at += len(found[0])
	}
	return found
}

// until consumes a text and the token after it.
func (r *reader) until(token string) (string, bool) {
	text, _, found := strings.Cut(r.rest(), token)
	if found {
		r.at += len(text) + len(token)
	}
	return text, found
}

// value parses a JSON value.
func (r *reader) value() (json.RawMessage, bool) {
	dec := json.NewDecoder(strings.NewReader(r.rest()))
	var raw json.RawMessage
	if dec.Decode(&raw) != nil {
		return nil, false
	}
	r.at += int(dec.InputOffset())
	return raw, true
}

// add adds a call that ends at the current position. It removes namespace prefixes, which some
// models add to names.
func (r *reader) add(begin int, name string, args json.RawMessage) bool {
	for _, prefix := range []string{"functions.", "default_api."} {
		name = strings.TrimPrefix(name, prefix)
	}
	var text string
	if json.Unmarshal(args, &text) == nil { // some APIs encode the arguments as a string
		args = json.RawMessage(text)
	}
	args = bytes.TrimSpace(args)
	if len(args) == 0 || string(args) == "null" {
		args = json.RawMessage("{}")
	}

	switch _, known := r.tools(name); {
	case !known:
		r.fault = fmt.Sprintf("there is no tool %q", name)
	case args[0] != '{' || !json.Valid(args):
		r.fault = fmt.Sprintf("the arguments of %s are not a JSON object", name)
	}
	r.calls = append(r.calls, Call{Name: name, Args: args, Source: strings.TrimSpace(r.text[begin:r.at])})
	return true
}

// wrappers are the markers around calls. The end marker may be missing at the end of an answer,
// because servers remove it as a stop word.
var wrappers = []struct{ begin, end string }{
	{"<tool_call>", "</tool_call>"}, {"<|tool_call|>", "<|/tool_call|>"}, {"<|tool_call>", "<tool_call|>"}, {"<function_call>", "</function_call>"},
	{"<start_function_call>", "<end_function_call>"}, {"[TOOL_CALLS]", ""}, {"<|python_tag|>", ""},
}

var (
	fence       = regexp.MustCompile("^```[ \\t]*(json|tool_call|tool_calls|tool_code|)[ \\t]*\\n")
	functionTag = regexp.MustCompile(`^<function=\s*"?([\w.-]+)"?\s*>`)
	parameter   = regexp.MustCompile(`^<parameter=\s*"?([\w.-]+)"?\s*>`)
	harmony     = regexp.MustCompile(`^(?:<\|start\|>assistant)?<\|channel\|>commentary to=([\w.-]+)\s*(?:<\|constrain\|>)?\s*(?:json)?\s*<\|message\|>`)
	deepSeek    = regexp.MustCompile(`^<\|tool_calls(?:_section)?_begin\|>`)
	deepSeekEnd = regexp.MustCompile(`^<\|tool_calls(?:_section)?_end\|>`)
	kimiName    = regexp.MustCompile(`^functions\.([\w.-]+):\d+$`)
	name        = regexp.MustCompile(`^(?:call:\s*)?([A-Za-z_][\w.-]*)`)
)

// one parses the next call, or all calls within one pair of markers.
func (r *reader) one() bool {
	begin := r.at
	for _, w := range wrappers {
		if r.take(w.begin) {
			return r.wrapped(w.end)
		}
	}

	switch found := r.match(harmony); {
	case found != nil:
		args, ok := r.value()
		return ok && r.space() && (r.take("<|call|>") || true) && r.add(begin, found[1], args)
	case strings.HasPrefix(r.rest(), "<function="):
		return r.function()
	case r.match(deepSeek) != nil:
		for r.space(); strings.HasPrefix(r.rest(), "<|tool_call_begin|>"); r.space() {
			if !r.deepSeekCall() {
				return false
			}
		}
		return r.match(deepSeekEnd) != nil || r.rest() == ""
	case strings.HasPrefix(r.rest(), "<|tool_call_begin|>"):
		return r.deepSeekCall()
	}

	if found := r.match(fence); found != nil {
		if found[1] == "tool_code" {
			return r.code()
		}
		return r.objects() && r.space() && (r.take("```") || r.rest() == "")
	}
	return r.objects() || r.list()
}

// wrapped parses the calls between markers.
func (r *reader) wrapped(end string) bool {
	for r.space(); ; r.space() {
		switch begin := r.at; {
		case strings.HasPrefix(r.rest(), "<function="):
			if !r.function() {
				return false
			}
		case strings.HasPrefix(r.rest(), "{"), strings.HasPrefix(r.rest(), "["):
			if !r.objects() {
				return false
			}
		default:
			found := r.match(name)
			if found == nil || !r.named(begin, found[1]) {
				return false
			}
		}

		r.space()
		switch {
		case end != "" && r.take(end), r.rest() == "", end == "" && strings.HasPrefix(r.rest(), "[TOOL_CALLS]"):
			return true
		case r.take(";"), r.take(","), strings.HasPrefix(r.rest(), "{"):
		default:
			return false
		}
	}
}

var callID = regexp.MustCompile(`^\[CALL_ID\][\w-]*`)

// named parses the arguments after the name of a tool.
func (r *reader) named(begin int, tool string) bool {
	r.space()
	r.match(callID)
	r.take("[ARGS]")
	switch r.space(); {
	case strings.HasPrefix(r.rest(), "<arg_key>"):
		return r.pairs(begin, tool)
	case strings.HasPrefix(r.rest(), "("):
		return r.arguments(begin, strings.TrimSuffix(tool, ".call"))
	case strings.HasPrefix(r.rest(), "{"):
		if args, ok := r.value(); ok {
			return r.add(begin, tool, args)
		}
		args, ok := r.literal()
		return ok && r.addValue(begin, tool, args)
	}
	return false
}

// pairs parses the arguments of GLM, which does not quote strings.
func (r *reader) pairs(begin int, tool string) bool {
	args := map[string]json.RawMessage{}
	for r.take("<arg_key>") {
		key, ok := r.until("</arg_key>")
		if !ok || !r.space() || !r.take("<arg_value>") {
			return false
		}
		value, ok := r.until("</arg_value>")
		if !ok {
			return false
		}
		args[strings.TrimSpace(key)] = r.typed(tool, strings.TrimSpace(key), value)
		r.space()
	}
	return r.addValue(begin, tool, args)
}

// function parses a call in a tag <function=NAME>, with its arguments as JSON or in tags.
func (r *reader) function() bool {
	begin := r.at
	found := r.match(functionTag)
	if found == nil {
		return false
	}

	if r.space(); strings.HasPrefix(r.rest(), "{") {
		args, ok := r.value()
		if !ok || !r.space() || !r.take("</function>") && r.rest() != "" {
			return false
		}
		return r.add(begin, found[1], args)
	}

	args := map[string]json.RawMessage{}
	for p := r.match(parameter); p != nil; p = r.match(parameter) {
		value, ok := r.until("</parameter>")
		if !ok {
			return false
		}
		value = strings.TrimSuffix(strings.TrimPrefix(strings.ReplaceAll(value, "\r\n", "\n"), "\n"), "\n")
		args[p[1]] = r.typed(found[1], p[1], value)
		r.space()
	}
	if !r.take("</function>") {
		return false
	}
	ok := r.addValue(begin, found[1], args)
	r.space()
	// Some models omit the begin marker of this end marker.
	return ok && (!r.inTag("</tool_call>") || r.take("</tool_call>"))
}

// inTag reports whether an end marker follows without a begin marker.
func (r *reader) inTag(end string) bool {
	return strings.HasPrefix(r.rest(), end) && !strings.Contains(r.text[:r.at], "<tool_call>")
}

// deepSeekCall parses a call of DeepSeek or Kimi.
func (r *reader) deepSeekCall() bool {
	begin := r.at
	r.take("<|tool_call_begin|>")
	text, ok := r.until("<|tool_call_end|>")
	if !ok {
		text = r.rest()
		r.at = len(r.text)
	}

	text = strings.TrimSpace(text)
	tool, args, found := strings.Cut(text, "<|tool_call_argument_begin|>")
	if m := kimiName.FindStringSubmatch(strings.TrimSpace(tool)); found && m != nil {
		tool = m[1]
	}
	if !found {
		if tool, args, found = strings.Cut(text, "<|tool_sep|>"); !found {
			return false
		}
		if args = strings.TrimSpace(args); !strings.HasPrefix(args, "{") { // the type precedes the name
			tool, args, _ = strings.Cut(args, "\n")
			args = strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(args), "```json"), "```")
		}
	}
	return r.add(begin, strings.TrimSpace(tool), json.RawMessage(args))
}

// objects parses a JSON value that is a call or a list of calls.
func (r *reader) objects() bool {
	begin := r.at
	if !strings.HasPrefix(r.rest(), "{") && !strings.HasPrefix(r.rest(), "[") {
		return false
	}
	raw, ok := r.value()
	if !ok {
		r.at = begin
		return false
	}

	list := []json.RawMessage{raw}
	var whole struct {
		Calls []json.RawMessage `json:"tool_calls"`
	}
	if raw[0] == '[' {
		list = nil
		_ = json.Unmarshal(raw, &list)
	} else if keys := keysOf(raw); slices.Equal(keys, []string{"tool_calls"}) && json.Unmarshal(raw, &whole) == nil {
		list = whole.Calls
	}

	type object struct {
		name string
		args json.RawMessage
	}
	calls := make([]object, 0, len(list))
	for _, one := range list {
		name, args, ok := callObject(one)
		if !ok {
			r.at = begin
			return false
		}
		calls = append(calls, object{name, args})
	}
	for _, c := range calls {
		if !r.add(begin, c.name, c.args) {
			return false
		}
	}
	return len(calls) > 0
}

// callObject returns the tool and the arguments of a JSON object that has exactly the shape of a
// call.
func callObject(raw json.RawMessage) (tool string, args json.RawMessage, ok bool) {
	var c struct {
		Name       string          `json:"name"`
		Arguments  json.RawMessage `json:"arguments"`
		Parameters json.RawMessage `json:"parameters"`
		Function   json.RawMessage `json:"function"`
	}
	keys := keysOf(raw)
	keys = slices.DeleteFunc(keys, func(key string) bool { return key == "id" || key == "type" })
	if json.Unmarshal(raw, &c) != nil {
		return "", nil, false
	}

	switch {
	case slices.Equal(keys, []string{"function"}):
		if len(keysOf(c.Function)) != 2 {
			return "", nil, false
		}
		return callObject(c.Function)
	case c.Name == "":
		return "", nil, false
	case slices.Equal(keys, []string{"arguments", "name"}):
		return c.Name, c.Arguments, true
	case slices.Equal(keys, []string{"name", "parameters"}):
		return c.Name, c.Parameters, true
	}
	return "", nil, false
}

// keysOf returns the sorted keys of a JSON object.
func keysOf(raw json.RawMessage) []string {
	var object map[string]json.RawMessage
	if json.Unmarshal(raw, &object) != nil {
		return nil
	}
	keys := make([]string, 0, len(object))
	for key := range object {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// addValue is like add, with arguments that are not encoded.
func (r *reader) addValue(begin int, tool string, args any) bool {
	raw, err := json.Marshal(args)
	return err == nil && r.add(begin, tool, raw)
}

// typed converts an unquoted argument to the type in its schema: a string, or another JSON value.
func (r *reader) typed(tool, key, value string) json.RawMessage {
	text, _ := json.Marshal(value) // never fails
	raw, _ := r.tools(strings.TrimPrefix(tool, "functions."))
	var schema struct {
		Properties map[string]struct {
			Type json.RawMessage `json:"type"`
		} `json:"properties"`
	}
	_ = json.Unmarshal(raw, &schema) // without types everything is a string
	kind := string(schema.Properties[key].Type)
	if kind == "" || strings.Contains(kind, `"string"`) {
		return text
	}

	value = strings.TrimSpace(value)
	if word, known := words[value]; known {
		value = word
	}
	if json.Valid([]byte(value)) {
		return json.RawMessage(value)
	}
	return text
}
