package memory

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// ParsedStep holds the parsed arguments of an agent_step.
type ParsedStep struct {
	Phase             Phase
	Thinking, Summary string

	Goal     string // of a plan
	SubTasks []SubTask

	Tool  string // of an act
	Input json.RawMessage

	Facts    []string
	Outcome  Status // of the current sub-task; empty if not given
	Question string

	Status  string // of an end: solved, partial or stuck
	Message string

	Warnings []string
}

// Invalid describes the argument that makes a step invalid.
type Invalid struct{ Field, Message, Expected string }

func (w *Invalid) Error() string { return w.Message }

// Parse parses the arguments of a step leniently: it accepts an object written as a string, numbers
// as ids, and any case. A step is invalid only if its phase, or an argument that the phase
// requires, is missing.
func Parse(args json.RawMessage) (ParsedStep, *Invalid) {
	m, ok := object(args)
	if !ok {
		return ParsedStep{}, &Invalid{"", "the arguments are no JSON object", "an object with phase, thinking and summary"}
	}

	s := ParsedStep{Phase: Phase(strings.ToLower(scalar(m["phase"]))), Thinking: scalar(m["thinking"]), Summary: scalar(m["summary"])}
	if !slices.Contains(Phases(), s.Phase) {
		return s, &Invalid{"phase", fmt.Sprintf("there is no phase %q", s.Phase), "one of " + phaseNames()}
	}

	s.Facts = scalars(m["key_facts"])
	var invalid *Invalid
	switch s.Phase {
	case Planning:
		invalid = s.parsePlan(m["plan"])
	case Act:
		invalid = s.parseAction(m["action"])
	case Verify:
		s.parseOutcome(scalar(m["sub_task_outcome"]))
	case Feedback:
		if s.Question = scalar(m["feedback_message"]); s.Question == "" {
			invalid = &Invalid{"feedback_message", "the question is missing", "what your owner is to tell you"}
		}
	case End:
		s.parseEnd(scalar(m["end_status"]), scalar(m["end_message"]))
	}

	return s, invalid
}

func phaseNames() string {
	var names []string
	for _, p := range Phases() {
		names = append(names, string(p))
	}
	return strings.Join(names, ", ")
}

// maxSubTasks limits the sub-tasks of a plan. It exceeds the steps that a run in phases may take.
const maxSubTasks = 40

func (s *ParsedStep) parsePlan(raw json.RawMessage) *Invalid {
	m, ok := object(raw)
	if !ok {
		return &Invalid{"plan", "the plan is missing", "an object with goal and sub_tasks"}
	}

	s.Goal = scalar(m["goal"])
	var list []json.RawMessage
	_ = json.Unmarshal(unquoted(m["sub_tasks"]), &list) // a value that is not a list leaves no sub-tasks, which is reported below
	if len(list) > maxSubTasks {
		s.Warnings = append(s.Warnings, fmt.Sprintf("the plan has %d sub-tasks; those after the first %d were left out", len(list), maxSubTasks))
		list = list[:maxSubTasks]
	}

	seen := map[string]bool{}
	for i, raw := range list {
		t, ok := object(raw)
		one := SubTask{ID: scalar(t["id"]), Title: scalar(t["title"]), DependsOn: scalars(t["depends_on"])}
		if !ok || one.ID == "" || one.Title == "" || seen[one.ID] {
			s.Warnings = append(s.Warnings, fmt.Sprintf("sub_tasks[%d] was left out: each needs a title, and an id of its own", i))
			continue
		}

		seen[one.ID] = true
		s.SubTasks = append(s.SubTasks, one)
	}
	if len(s.SubTasks) == 0 {
		return &Invalid{"plan.sub_tasks", "the plan has no sub-task that could be understood", `objects like {"id":"1","title":"read the file","depends_on":[]}`}
	}

	return nil
}

func (s *ParsedStep) parseAction(raw json.RawMessage) *Invalid {
	m, ok := object(raw)
	if !ok {
		return &Invalid{"action", "the action is missing", "an object with tool_name and tool_input"}
	}

	switch s.Tool = scalar(m["tool_name"]); s.Tool {
	case "":
		return &Invalid{"action.tool_name", "the action names no tool", "the name of a tool"}
	case StepTool:
		return &Invalid{"action.tool_name", "a step cannot be the action of a step", "the name of another tool"}
	}

	if s.Input = m["tool_input"]; len(s.Input) == 0 || string(s.Input) == "null" {
		s.Input = json.RawMessage("{}")
	}

	return nil
}

func (s *ParsedStep) parseOutcome(text string) {
	switch o := Status(strings.ToLower(text)); o {
	case "":
	case Done, Failed:
		s.Outcome = o
	default:
		s.Warnings = append(s.Warnings, fmt.Sprintf("sub_task_outcome %q says nothing; it is done or failed", text))
	}
}

func (s *ParsedStep) parseEnd(status, message string) {
	s.Status, s.Message = strings.ToLower(status), message
	// A run that ends with an unknown status has still ended. The tool complete has the same
	// default.
	if !slices.Contains([]string{Solved, Partial, Stuck}, s.Status) {
		s.Status = Solved
	}
	if s.Message == "" {
		s.Message = s.Summary
	}
}

// StepTool is the name of the tool with which a model takes a step.
const StepTool = "agent_step"

// The statuses with which a run in phases ends.
const (
	Solved  = "solved"
	Partial = "partial"
	Stuck   = "stuck"
)

// unquoted returns the JSON value in a string that contains JSON. It returns other values
// unchanged.
func unquoted(raw json.RawMessage) json.RawMessage {
	var s string
	if json.Unmarshal(raw, &s) == nil && json.Valid([]byte(s)) {
		return json.RawMessage(s)
	}
	return raw
}

func object(raw json.RawMessage) (map[string]json.RawMessage, bool) {
	var m map[string]json.RawMessage
	err := json.Unmarshal(unquoted(raw), &m)
	return m, err == nil && m != nil
}

// scalar returns a string, or a number or boolean as a string. It returns "" for other values.
func scalar(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return strings.TrimSpace(s)
	}

	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || raw[0] == '{' || raw[0] == '[' || string(raw) == "null" || !json.Valid(raw) {
		return ""
	}
	return string(raw)
}

// scalars returns the elements of a list of strings. A single string counts as a list of one.
func scalars(raw json.RawMessage) []string {
	var list []json.RawMessage
	if json.Unmarshal(unquoted(raw), &list) != nil {
		list = []json.RawMessage{raw}
	}

	var out []string
	for _, r := range list {
		if s := scalar(r); s != "" {
			out = append(out, s)
		}
	}
	return out
}
