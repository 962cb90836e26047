package moduleapi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"rouse/agent/tool"
	"rouse/internal/ledger/event"
	"rouse/internal/text"
)

// Error is an error that is thrown in the module.
type Error struct {
	Message string
	Code    string // kind of an envelope, or one of the codes below
}

func (e *Error) Error() string { return e.Message }

// Codes for refused programs, in addition to the kinds of envelopes.
const (
	codeDeniedByUser = "rejected_by_user"
	codeDenied       = "bridge_policy_denied"
	codeInvalid      = "invalid_request"
)

// argumentError returns an error about the arguments of a call.
func argumentError(message string) *Error {
	return &Error{Message: message, Code: string(tool.KindInvalidArgs)}
}

// Call is the translation of a module's call: a tool call, or a value returned without one.
type Call struct {
	Tool    string // if "", Value is the result
	Args    json.RawMessage
	Value   json.RawMessage
	Event   *Event // event to record, or nil
	Over    string // reason why the run ends with this call, or ""
	method  method
	request string // request id of a program
}

// Method returns the name of the called method, with aliases resolved.
func (c Call) Method() string { return c.method.name }

// ReadsWorkspace reports whether a module reads its workspace with a call.
func (c Call) ReadsWorkspace() bool { return ReadsWorkspace(c.Tool) }

// ReadsWorkspace reports whether a tool reads the workspace of a module.
func ReadsWorkspace(name string) bool {
	return name == getStateSpec.Name || name == listArtifactsSpec.Name
}

// AsksAgain reports whether the envelope of a call is a question to the owner, of which the outcome
// is not recorded. The next attempt must then repeat the call.
func (c Call) AsksAgain(envelope json.RawMessage) bool {
	if c.Tool != authorizeSpec.Name && c.Tool != installSpec.Name {
		return false
	}
	var e struct{ Result wait }
	return json.Unmarshal(envelope, &e) == nil && e.Result.Question != ""
}

// Event is an event that a module reports.
type Event struct {
	Kind string
	Data map[string]any
}

// Kinds of events.
const (
	EventProgress = event.Progress
	EventCustom   = "skill.event"
	EventStep     = "skill.step"
	EventJob      = "skill.job"    // state of a program: queued, completed, failed, terminated, refused
	EventResult   = "skill.result" // return value of a module, in "value"
)

// maxEvent limits the content of an event, in bytes of JSON.
const maxEvent = 4 << 10

// Translate translates a call of a method. args is a JSON array. The error is an *Error for the
// module.
func (h *Host) Translate(name string, args json.RawMessage) (Call, error) {
	m, known := methodOf(name)
	if !known || !h.has(name) {
		return Call{}, &Error{Message: fmt.Sprintf("host.%s is not there", name), Code: string(tool.KindToolNotFound)}
	}

	args, err := h.conceal(args)
	if err == nil {
		err = h.undeclaredSecrets(args)
	}
	if err != nil {
		return Call{}, err
	}
	c := Call{Tool: m.tool, method: m}
	var given []json.RawMessage
	if err := json.Unmarshal(args, &given); err != nil {
		return c, argumentError("the arguments are not understood: " + err.Error())
	}
	if m.params == nil {
		c.Args = json.RawMessage("{}")
		if len(given) > 0 && !isNull(given[0]) {
			c.Args = given[0]
		}
	}

	named := map[string]json.RawMessage{}
	for i, param := range m.params {
		if i < len(given) && !isNull(given[i]) { // JSON lists encode undefined as null
			named[param] = given[i]
		}
	}

	switch {
	case m.route != nil:
		return m.route(h, c, named)
	case m.params != nil:
		c.Args, err = json.Marshal(named)
	}
	return c, err
}

// methodOf returns the method with a name, with aliases resolved.
func methodOf(name string) (method, bool) {
	at := slices.IndexFunc(methods, func(m method) bool { return m.name == name })
	if at < 0 {
		return method{}, false
	}
	if like := methods[at].like; like != "" {
		return methodOf(like)
	}
	return methods[at], true
}

func (h *Host) emitProgress(c Call, named map[string]json.RawMessage) (Call, error) {
	c.Event = &Event{EventProgress, map[string]any{"value": decoded(named["progress"]), "text": decoded(named["message"])}}
	return c, nil
}

func (h *Host) emitCustom(c Call, named map[string]json.RawMessage) (Call, error) {
	c.Event = &Event{EventCustom, map[string]any{"title": decoded(named["type"]), "payload": decoded(named["payload"])}}
	return c, nil
}

func (h *Host) listHandles(c Call, _ map[string]json.RawMessage) (Call, error) {
	return answered(c, append([]handle{}, h.handles...))
}

// invoke calls a tool by its name. The tool is a program, or a tool of the agent that the owner has
// allowed for the skill.
func (h *Host) invoke(c Call, named map[string]json.RawMessage) (Call, error) {
	var name string
	if json.Unmarshal(named["name"], &name) == nil && name == systemCommand && h.has("bridge.executeCommand") {
		q, err := readCommand(named["args"])
		if err == nil {
			c.Args, err = h.shellArgs(q)
		}
		return c, err
	}
	if h.o.Callable == nil || !h.o.Callable(name) {
		return c, &Error{Message: fmt.Sprintf("the tool %q is not there for this module; its owner names those that are, in the settings of the skill", name), Code: string(tool.KindToolNotFound)}
	}

	if c.Tool, c.Args = name, named["args"]; len(c.Args) == 0 {
		c.Args = json.RawMessage("{}")
	}
	return c, nil
}

// answered returns a call that is answered without a tool.
func answered(c Call, with any) (Call, error) {
	var err error
	c.Tool, c.Args = "", nil
	c.Value, err = json.Marshal(with)
	return c, err
}

// decoded returns a value for an event. If the value is too large, it returns a note of its size.
func decoded(raw json.RawMessage) any {
	var v any
	switch {
	case len(raw) > maxEvent:
		return text.Size(int64(len(raw))) + " of JSON"
	case json.Unmarshal(raw, &v) != nil:
		return nil
	}
	return v
}

// Answer returns the value that the module gets for the envelope of a call. The error is an *Error
// to be thrown in the module.
func (h *Host) Answer(ctx context.Context, c Call, key string, e tool.Envelope) (json.RawMessage, error) {
	switch c.method.name {
	case "bridge.executeCommand":
		return h.acceptJob(ctx, c, key, e)
	case "bridge.installTool":
		return h.acceptInstall(key, e)
	}
	if !e.OK {
		code := string(e.Kind)
		if c.Tool == commandTool {
			code = commandCode(e.Kind)
		}
		return nil, &Error{Message: e.Message, Code: code}
	}

	fields := map[string]json.RawMessage{}
	if err := json.Unmarshal(e.Result, &fields); err != nil || len(fields) == 0 && c.Tool == c.method.tool {
		return nil, &Error{Message: "the call was made, as its owner says, and what it gave is not known", Code: string(tool.KindUnavailable)}
	}

	h.seen(c, fields)
	switch c.method.name {
	case "tools.invoke", "tools.callTool":
		if c.Tool != commandTool {
			return e.Result, nil
		}
		var r ran
		if err := json.Unmarshal(e.Result, &r); err != nil {
			return nil, err
		}
		return json.Marshal(commandResult{r.Stdout, r.Stderr, r.ExitCode})
	case "vault.resolveBinding", "oauth.getToken", "oauth.refresh":
		return h.reveal(fields["value"]), nil
	case "filesystem.openFile", "filesystem.openDirectory":
		var opened handle
		if err := json.Unmarshal(e.Result, &opened); err == nil && !slices.Contains(h.handles, opened) {
			h.handles = append(h.handles, opened)
		}
	}
	if c.method.field != "" {
		return fields[c.method.field], nil
	}
	return e.Result, nil
}

// acceptJob stores the result of a program for waitForJob. A refusal is returned as a value, not as
// an error. An allowed program that did not start is a failed job.
func (h *Host) acceptJob(ctx context.Context, c Call, key string, e tool.Envelope) (json.RawMessage, error) {
	done := job{Status: jobFailed, ExitCode: -1, Reason: e.Message}
	switch {
	case e.OK:
		var r ran
		if err := json.Unmarshal(e.Result, &r); err != nil {
			return nil, err
		}
		done = newJob(r)
	case e.Kind == tool.KindNotFound:
		return json.Marshal(refusedRequest(c.request, codeInvalid, e.Message))
	case commandCode(e.Kind) != string(e.Kind):
		return json.Marshal(refusedRequest(c.request, commandCode(e.Kind), e.Message))
	}

	why, err := h.decisionOn(ctx, key)
	if err != nil {
		return nil, err
	}
	h.jobs[key] = done
	return json.Marshal(h.acceptedRequest(c.request, key, why))
}

// commandCode returns the code that modules expect for a failed program.
func commandCode(k tool.Kind) string {
	codes := map[tool.Kind]string{tool.KindUserDenied: codeDeniedByUser, tool.KindRejected: codeDenied, tool.KindInvalidArgs: codeInvalid}
	if code, ok := codes[k]; ok {
		return code
	}
	return string(k)
}

// Getters returns the values that modules read synchronously.
func (h *Host) Getters() map[string]json.RawMessage {
	out := map[string]json.RawMessage{}
	if slices.ContainsFunc(h.methods, func(name string) bool { return strings.HasPrefix(name, "bridge.") }) {
		out["bridge.isAvailable"] = strconv.AppendBool(nil, h.has("bridge.executeCommand"))
	}
	if h.has("run.reportStep") {
		out[stepCount] = strconv.AppendInt(nil, int64(h.progress.Steps), 10)
		out["run.getStepBudget"] = json.RawMessage("null")
		if soft := agentic(h.o.Manifest).DefaultStepBudget; soft != nil {
			out["run.getStepBudget"] = strconv.AppendInt(nil, int64(*soft), 10)
		}
	}
	return out
}

// stepCount is a getter that the module's machine itself increments with each call of reportStep.
const stepCount = "run.getStepCount"

func isNull(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }

// jsonEqual reports whether two JSON texts are equal apart from whitespace.
func jsonEqual(a, b json.RawMessage) bool {
	var x, y bytes.Buffer
	return json.Compact(&x, a) == nil && json.Compact(&y, b) == nil && bytes.Equal(x.Bytes(), y.Bytes())
}

// Describe returns a one-line description of a call for display.
func (c Call) Describe() string {
	if c.Tool == "" {
		return c.method.name
	}
	return c.method.name + " " + text.Truncate(text.Collapse(string(c.Args)), maxShown)
}

// maxShown limits the arguments in the description of a call, in characters.
const maxShown = 200

// Names returns the names of all methods, sorted.
func Names() []string {
	all := map[string]bool{"bridge.isAvailable": true, stepCount: true, "run.getStepBudget": true}
	for _, m := range methods {
		all[m.name] = true
	}
	return slices.Sorted(maps.Keys(all))
}
