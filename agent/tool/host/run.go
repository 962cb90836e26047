package host

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"unicode/utf8"

	"rouse/agent/tool"
	"rouse/agentdb/ledger"
	"rouse/internal/domain"
	"rouse/internal/form"
	"rouse/internal/text"
	"rouse/skills"
)

// The tools of host.run (OSL-13). Each that is on record makes a checkpoint: where a run stops, it can be begun again from there.
var (
	checkpointSpec = changing("host_run_checkpoint", "Records how far the run of a module is.", domain.EffectDatabase, reflect.TypeFor[checkpointArgs]())
	pauseSpec      = waiting(changing("host_run_pause", "Pauses the run of a module, until its owner has it go on.", domain.EffectDatabase, reflect.TypeFor[pauseArgs]()))
	inputSpec      = waiting(changing("host_run_request_input", "Asks the owner of a module's run.", domain.EffectDatabase, reflect.TypeFor[inputArgs]()))
)

// waiting is a spec of a tool whose result is what its run waits for.
func waiting(s tool.Spec) tool.Spec {
	s.Ends, s.Waits = true, true
	return s
}

// The limits of what a module asks its owner, in characters.
const (
	maxTitle    = 200
	maxQuestion = 20_000
)

// defaultMaxSteps bounds the steps of a run whose manifest does not (OSL-14).
const defaultMaxSteps = 1000

// progress is how far a run is, as its module says. It is what a checkpoint keeps beside the workspace.
type progress struct {
	Steps int    `json:"steps"` // that were reported
	Step  string `json:"step,omitempty"`
	Phase string `json:"phase,omitempty"`
	Role  string `json:"role,omitempty"`
}

type checkpointArgs struct {
	progress
	Over  bool `json:"over,omitempty" jsonschema:"the run ends with it: its steps are used up"`
	State any  `json:"state,omitempty" jsonschema:"what the module wants to keep of its run"`
}

type pauseArgs struct {
	progress
	Reason string `json:"reason"`
}

type inputArgs struct {
	progress
	Title       string         `json:"title"`
	Message     string         `json:"message,omitempty"`
	InputSchema map[string]any `json:"inputSchema,omitempty"`
}

// wait is what a run waits for, as the loop reads it.
type wait struct {
	Kind        string         `json:"kind"` // of an item in the inbox
	Title       string         `json:"title,omitempty"`
	Question    string         `json:"question"`
	Options     []string       `json:"options,omitempty"`
	InputSchema map[string]any `json:"input_schema,omitempty"`
}

// maxSteps is how many steps a run of a module may report (OSL-14).
func maxSteps(m *skills.Manifest) int {
	if c := m.AgenticConfig; c != nil && c.Enabled && c.MaxStepsPerRun != nil {
		return *c.MaxStepsPerRun
	}
	return defaultMaxSteps
}

// stepBudget is after how many steps a checkpoint is made by itself; nil: none is.
func stepBudget(m *skills.Manifest) *int {
	if c := m.AgenticConfig; c != nil && c.Enabled {
		return c.DefaultStepBudget
	}
	return nil
}

func hasRoles(m *skills.Manifest) bool {
	return m.AgenticConfig != nil && m.AgenticConfig.Enabled && m.AgenticConfig.SupportsRoleBasedExecution
}

// reportStep counts a step. The one that reaches the soft budget makes a checkpoint, and so does the one after the last that the
// run may take, with which it ends.
func (h *Host) reportStep(c Call, named map[string]json.RawMessage) (Call, error) {
	var label, role string
	if json.Unmarshal(named["label"], &label) != nil {
		return c, argumentError("a step has a name: reportStep(label)")
	}
	if json.Unmarshal(named["role"], &role) == nil && role != "" && hasRoles(h.o.Manifest) {
		h.progress.Role = word(role)
	}
	h.progress.Step = word(label)
	h.progress.Steps++

	most, soft := maxSteps(h.o.Manifest), stepBudget(h.o.Manifest)
	switch {
	case h.progress.Steps > most:
		h.progress.Steps = most
		c.Over = fmt.Sprintf("the run took the %d steps that its skill may take in one (agenticConfig.maxStepsPerRun)", most)
	case soft != nil && h.progress.Steps == *soft:
	default:
		c.Tool = ""
	}

	c.Event = &Event{EventStep, map[string]any{"step": h.progress.Steps, "label": h.progress.Step, "role": h.progress.Role}}
	if c.Tool == "" {
		return c, nil
	}
	var err error
	c.Args, err = json.Marshal(checkpointArgs{progress: h.progress, Over: c.Over != ""})
	return c, err
}

// Renew begins a pass of a module, with as many steps as were reported before it.
func (h *Host) Renew(steps int) { h.progress.Steps += steps }

// RenewSteps gives a run all of its steps again.
func (h *Host) RenewSteps() { h.progress.Steps = 0 }

// Mark is where a run can be begun again from, as its calls tell.
type Mark struct {
	Steps       int  // that were reported until then
	Pause, Over bool // the run was paused with it, or had used up its steps
}

// ReadMark reads the arguments of a call that made a checkpoint; ok is false for any other.
func ReadMark(name string, args json.RawMessage) (m Mark, ok bool) {
	if name != checkpointSpec.Name && name != pauseSpec.Name && name != inputSpec.Name {
		return m, false
	}
	var a checkpointArgs
	if err := json.Unmarshal(args, &a); err != nil {
		return m, false // which no call on record has
	}
	return Mark{Steps: a.Steps, Pause: name == pauseSpec.Name, Over: a.Over}, true
}

// updateProgress notes what a module says of its progress in one (OSL-13).
func (h *Host) updateProgress(c Call, _ map[string]json.RawMessage) (Call, error) {
	var a struct {
		Phase, Step, Message string
		Percent              *float64
	}
	if err := json.Unmarshal(c.Args, &a); err != nil {
		return c, argumentError("progress is {phase, step, percent, message}, of which percent is a number: " + err.Error())
	}

	if a.Phase != "" {
		h.progress.Phase = word(a.Phase)
	}
	if a.Step != "" {
		h.progress.Step = word(a.Step)
	}
	data := map[string]any{"text": text.Truncate(text.Collapse(a.Message), maxTitle), "phase": h.progress.Phase, "step": h.progress.Step}
	if a.Percent != nil {
		data["value"] = *a.Percent / 100
	}
	c.Event = &Event{EventProgress, data}
	return c, nil
}

// word is a text as a checkpoint keeps it: one short line.
func word(s string) string { return strings.TrimSpace(text.Truncate(text.Collapse(s), maxWord)) }

// maxWord is how long names of steps, phases and roles are, in characters.
const maxWord = 100

// runCall is a call of host.run, with how far the run is: that is a part of its checkpoint. What a module says of that in the
// arguments is not taken.
func (h *Host) runCall(c Call, named map[string]json.RawMessage) (Call, error) {
	if c.method.params == nil {
		if err := json.Unmarshal(c.Args, &named); err != nil {
			return c, argumentError("the argument is an object: " + err.Error())
		}
	}
	done, err := json.Marshal(h.progress)
	if err != nil {
		return c, err
	}

	for _, own := range []string{"steps", "step", "phase", "role", "over"} {
		delete(named, own)
	}
	if err := json.Unmarshal(done, &named); err != nil { // adds to what is there
		return c, err
	}
	c.Args, err = json.Marshal(named)
	return c, err
}

func (h *Host) checkpoint() (tool.Tool, error) {
	s := checkpointSpec
	s.Needs = h.workspaceWrites
	return tool.Define(s, func(ctx context.Context, in tool.Invocation, a checkpointArgs) (tool.Envelope, error) {
		if refused, err := h.keep(ctx, in, a.progress, a.State); refused != nil || err != nil {
			return *refused, err
		}
		return tool.Success(value{}), nil
	})
}

// keep records a checkpoint. refused is why it could not be.
func (h *Host) keep(ctx context.Context, in tool.Invocation, p progress, state any) (refused *tool.Envelope, err error) {
	kept, err := json.Marshal(struct {
		progress
		State any `json:"state,omitempty"`
	}{p, state})
	if err != nil {
		return &tool.Envelope{}, err
	}

	c := ledger.Checkpoint{Phase: p.Phase, Role: p.Role, Step: p.Step, RunState: kept}
	if h.o.Workspace != nil {
		c.Workspace = h.o.Workspace.ID
	}
	_, err = h.o.Ledger.AddCheckpoint(ctx, author(in), c)
	return ledgerRefusal(err)
}

func (h *Host) pause() (tool.Tool, error) {
	s := pauseSpec
	s.Needs = h.workspaceWrites
	return tool.Define(s, func(ctx context.Context, in tool.Invocation, a pauseArgs) (tool.Envelope, error) {
		if refused, err := h.keep(ctx, in, a.progress, nil); refused != nil || err != nil {
			return *refused, err
		}
		reason := strings.TrimSpace(text.Truncate(a.Reason, maxQuestion))
		if reason == "" {
			reason = "the skill gave no reason"
		}
		return tool.Success(wait{Kind: ledger.KindPause, Question: reason, Options: []string{ledger.PauseContinue, ledger.PauseStop}}), nil
	})
}

func (h *Host) requestInput() (tool.Tool, error) {
	s := inputSpec
	s.Needs = tool.RefusingFirst(wrongRequest, h.workspaceWrites)
	return tool.Define(s, func(ctx context.Context, in tool.Invocation, a inputArgs) (tool.Envelope, error) {
		if refused := wrongRequest(a); refused != nil {
			return *refused, nil
		}
		if refused, err := h.keep(ctx, in, a.progress, nil); refused != nil || err != nil {
			return *refused, err
		}

		w := wait{Kind: ledger.KindInput, Title: text.Collapse(a.Title), Question: strings.TrimSpace(a.Message)}
		if w.Question == "" {
			w.Question = w.Title
		}
		if hasFields(a.InputSchema) {
			w.InputSchema = a.InputSchema
		}
		return tool.Success(w), nil
	})
}

// wrongRequest answers a request for input that nobody can be asked with, nil where they can (OSL-31).
func wrongRequest(a inputArgs) *tool.Envelope {
	var e tool.Envelope
	switch {
	case strings.TrimSpace(a.Title) == "":
		e = tool.Failure(tool.KindInvalidArgs, "a request for input has a title").WithField("title", "what is asked, in a line")
	case utf8.RuneCountInString(a.Title) > maxTitle:
		e = tool.Failure(tool.KindInvalidArgs, "the title has more than %d characters", maxTitle).WithField("title", "a shorter one; the rest into message")
	case utf8.RuneCountInString(a.Message) > maxQuestion:
		e = tool.Failure(tool.KindInvalidArgs, "the message has more than %d characters", maxQuestion).WithField("message", "a shorter one; what is long into an artifact")
	case hasFields(a.InputSchema):
		raw, err := json.Marshal(a.InputSchema)
		if err == nil {
			_, err = form.Parse(raw)
		}
		if err == nil {
			return nil
		}
		e = tool.Failure(tool.KindInvalidArgs, "nobody can be asked with this inputSchema: %v", err).WithField("inputSchema", "a JSON Schema of an object without $ref")
	default:
		return nil
	}
	return &e
}

// hasFields says whether a schema asks for values by name. Without any, the answer is a text.
func hasFields(schema map[string]any) bool {
	fields, _ := schema["properties"].(map[string]any)
	return len(fields) > 0
}
