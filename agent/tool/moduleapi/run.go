package moduleapi

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"rouse/agent/tool"
	"rouse/internal/form"
	"rouse/internal/ledger/inbox"
	"rouse/internal/ledger/workspace"
	"rouse/internal/text"
	"rouse/skills"
)

// The tools of host.run. Each recorded call stores a checkpoint from which a run can continue.
var (
	checkpointSpec = changing("host_run_checkpoint", "Records how far the run of a module is.", tool.Spec{})
	pauseSpec      = changing("host_run_pause", "Pauses the run of a module, until its owner has it go on.", tool.Spec{Ends: true, Waits: true})
	inputSpec      = changing("host_run_request_input", "Asks the owner of a module's run.", tool.Spec{Ends: true, Waits: true})
)

// Limits of a question to the owner, in characters.
const (
	maxTitle    = 200
	maxQuestion = 20_000
)

// defaultMaxSteps is the maximum number of steps of a run if its manifest has no limit.
const defaultMaxSteps = 1000

// progress is the progress of a run as reported by its module. It is part of checkpoints.
type progress struct {
	Steps int    `json:"steps"` // number of reported steps
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

// wait describes an inbox item that a run waits for.
type wait struct {
	Kind        string         `json:"kind"` // kind of the inbox item
	Title       string         `json:"title,omitempty"`
	Question    string         `json:"question"`
	Options     []string       `json:"options,omitempty"`
	InputSchema map[string]any `json:"input_schema,omitempty"`
}

// agentic returns the agentic configuration of a manifest if it is enabled, or the zero value.
func agentic(m *skills.Manifest) (c skills.AgenticConfig) {
	if m.AgenticConfig != nil && m.AgenticConfig.Enabled {
		c = *m.AgenticConfig
	}
	return c
}

// reportStep counts a step. It stores a checkpoint when the step reaches the soft budget. It also
// stores one when the step exceeds the maximum, and then the run ends.
func (h *Host) reportStep(c Call, named map[string]json.RawMessage) (Call, error) {
	var label, role string
	if json.Unmarshal(named["label"], &label) != nil {
		return c, argumentError("a step has a name: reportStep(label)")
	}
	config := agentic(h.o.Manifest)
	if json.Unmarshal(named["role"], &role) == nil && role != "" && config.SupportsRoleBasedExecution {
		h.progress.Role = word(role)
	}
	h.progress.Step = word(label)
	h.progress.Steps++

	most, soft := defaultMaxSteps, config.DefaultStepBudget
	if config.MaxStepsPerRun != nil {
		most = *config.MaxStepsPerRun
	}
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

// Renew adds the steps that were reported before this pass of the module.
func (h *Host) Renew(steps int) { h.progress.Steps += steps }

// RenewSteps resets the step count, so that the run may take all of its steps again.
func (h *Host) RenewSteps() { h.progress.Steps = 0 }

// Mark is a checkpoint from which a run can continue.
type Mark struct {
	Steps       int  // number of steps reported until then
	Pause, Over bool // the run was paused, or had used up its steps
}

// ReadMark parses the arguments of a call that stored a checkpoint. ok is false for any other call.
func ReadMark(name string, args json.RawMessage) (m Mark, ok bool) {
	if name != checkpointSpec.Name && name != pauseSpec.Name && name != inputSpec.Name {
		return m, false
	}
	var a checkpointArgs
	if err := json.Unmarshal(args, &a); err != nil {
		return m, false // recorded calls are always valid
	}
	return Mark{Steps: a.Steps, Pause: name == pauseSpec.Name, Over: a.Over}, true
}

// updateProgress records the progress that a module reports.
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

// word returns a text in the form stored in checkpoints: one short line.
func word(s string) string { return strings.TrimSpace(text.Truncate(text.Collapse(s), maxWord)) }

// maxWord limits the names of steps, phases and roles, in characters.
const maxWord = 100

// runCall adds the progress of the run to the arguments of a call of host.run. It overwrites
// progress fields that the module has set.
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
	if err := json.Unmarshal(done, &named); err != nil { // adds to the existing fields
		return c, err
	}
	c.Args, err = json.Marshal(named)
	return c, err
}

func (h *Host) checkpoint(ctx context.Context, in tool.Invocation, a checkpointArgs) (tool.Envelope, error) {
	if err := h.keep(ctx, in, a.progress, a.State); err != nil {
		return tool.Envelope{}, err
	}
	return tool.Success(value{}), nil
}

// keep stores a checkpoint.
func (h *Host) keep(ctx context.Context, in tool.Invocation, p progress, state any) error {
	kept, err := json.Marshal(struct {
		progress
		State any `json:"state,omitempty"`
	}{p, state})
	if err != nil {
		return err
	}

	c := workspace.Checkpoint{Phase: p.Phase, Role: p.Role, Step: p.Step, RunState: kept}
	if h.o.Workspace != nil {
		c.Workspace = h.o.Workspace.ID
	}
	_, err = h.o.Ledger.Workspaces.AddCheckpoint(ctx, in.Author(), c)
	return tool.LedgerRefusal(err)
}

func (h *Host) pause(ctx context.Context, in tool.Invocation, a pauseArgs) (tool.Envelope, error) {
	if err := h.keep(ctx, in, a.progress, nil); err != nil {
		return tool.Envelope{}, err
	}
	reason := cmp.Or(strings.TrimSpace(text.Truncate(a.Reason, maxQuestion)), "the skill gave no reason")
	return tool.Success(wait{Kind: inbox.KindPause, Question: reason, Options: []string{inbox.PauseContinue, inbox.PauseStop}}), nil
}

func (h *Host) requestInput(ctx context.Context, in tool.Invocation, a inputArgs) (tool.Envelope, error) {
	if err := h.keep(ctx, in, a.progress, nil); err != nil {
		return tool.Envelope{}, err
	}
	w := wait{Kind: inbox.KindInput, Title: text.Collapse(a.Title), Question: cmp.Or(strings.TrimSpace(a.Message), text.Collapse(a.Title))}
	if hasFields(a.InputSchema) {
		w.InputSchema = a.InputSchema
	}
	return tool.Success(w), nil
}

// checkInput returns an error if a request for input cannot be shown to the owner.
func (h *Host) checkInput(a inputArgs) error {
	refuse := func(field, expected, format string, args ...any) error {
		return tool.Refuse(tool.KindInvalidArgs, format, args...).WithField(field, expected)
	}
	switch {
	case strings.TrimSpace(a.Title) == "":
		return refuse("title", "what is asked, in a line", "a request for input has a title")
	case utf8.RuneCountInString(a.Title) > maxTitle:
		return refuse("title", "a shorter one; the rest into message", "the title has more than %d characters", maxTitle)
	case utf8.RuneCountInString(a.Message) > maxQuestion:
		return refuse("message", "a shorter one; what is long into an artifact", "the message has more than %d characters", maxQuestion)
	case !hasFields(a.InputSchema):
		return nil
	}

	raw, err := json.Marshal(a.InputSchema)
	if err == nil {
		_, err = form.Parse(raw)
	}
	if err != nil {
		return refuse("inputSchema", "a JSON Schema of an object without $ref", "nobody can be asked with this inputSchema: %v", err)
	}
	return nil
}

// hasFields reports whether a schema has named fields. Without fields, the answer is a text.
func hasFields(schema map[string]any) bool {
	fields, _ := schema["properties"].(map[string]any)
	return len(fields) > 0
}
