package memory

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Said is what a model says with one agent_step, as far as it could be understood (AYA-06).
type Said struct {
	Phase             Phase
	Thinking, Summary string

	Goal     string // of a plan
	SubTasks []SubTask

	Tool  string // of an act
	Input json.RawMessage

	Facts    []string
	Outcome  Status // of the current sub-task, "" when nothing is said of it
	Question string

	Status  string // of an end: solved, partial or stuck
	Message string

	Warnings []string
}

// Wrong is what cannot be understood.
type Wrong struct{ Field, Message, Expected string }

func (w *Wrong) Error() string { return w.Message }

// Parse takes what models write for what they mean: an object written as a string, numbers
// as ids, words of another case. Without its phase, or without what that phase is about, a
// step means nothing.
func Parse(args json.RawMessage) (Said, *Wrong) {
	m, ok := object(args)
	if !ok {
		return Said{}, &Wrong{"", "the arguments are no JSON object", "an object with phase, thinking and summary"}
	}

	s := Said{Phase: Phase(strings.ToLower(word(m["phase"]))), Thinking: word(m["thinking"]), Summary: word(m["summary"])}
	if !slices.Contains(Phases(), s.Phase) {
		return s, &Wrong{"phase", fmt.Sprintf("there is no phase %q", s.Phase), "one of " + phaseNames()}
	}

	s.Facts = texts(m["key_facts"])
	var wrong *Wrong
	switch s.Phase {
	case Planning:
		wrong = s.plan(m["plan"])
	case Act:
		wrong = s.action(m["action"])
	case Verify:
		s.outcome(word(m["sub_task_outcome"]))
	case Feedback:
		if s.Question = word(m["feedback_message"]); s.Question == "" {
			wrong = &Wrong{"feedback_message", "the question is missing", "what your owner is to tell you"}
		}
	case End:
		s.end(word(m["end_status"]), word(m["end_message"]))
	}

	return s, wrong
}

func phaseNames() string {
	var names []string
	for _, p := range Phases() {
		names = append(names, string(p))
	}
	return strings.Join(names, ", ")
}

// maxSubTasks is more than a run in phases has steps for.
const maxSubTasks = 40

func (s *Said) plan(raw json.RawMessage) *Wrong {
	m, ok := object(raw)
	if !ok {
		return &Wrong{"plan", "the plan is missing", "an object with goal and sub_tasks"}
	}

	s.Goal = word(m["goal"])
	var list []json.RawMessage
	_ = json.Unmarshal(inner(m["sub_tasks"]), &list) // no list has no sub-tasks
	if len(list) > maxSubTasks {
		s.Warnings = append(s.Warnings, fmt.Sprintf("the plan has %d sub-tasks; those after the first %d were left out", len(list), maxSubTasks))
		list = list[:maxSubTasks]
	}

	seen := map[string]bool{}
	for i, raw := range list {
		t, ok := object(raw)
		one := SubTask{ID: word(t["id"]), Title: word(t["title"]), DependsOn: texts(t["depends_on"])}
		if !ok || one.ID == "" || one.Title == "" || seen[one.ID] {
			s.Warnings = append(s.Warnings, fmt.Sprintf("sub_tasks[%d] was left out: each needs a title, and an id of its own", i))
			continue
		}

		seen[one.ID] = true
		s.SubTasks = append(s.SubTasks, one)
	}
	if len(s.SubTasks) == 0 {
		return &Wrong{"plan.sub_tasks", "the plan has no sub-task that could be understood", `objects like {"id":"1","title":"read the file","depends_on":[]}`}
	}

	return nil
}

func (s *Said) action(raw json.RawMessage) *Wrong {
	m, ok := object(raw)
	if !ok {
		return &Wrong{"action", "the action is missing", "an object with tool_name and tool_input"}
	}

	switch s.Tool = word(m["tool_name"]); s.Tool {
	case "":
		return &Wrong{"action.tool_name", "the action names no tool", "the name of a tool"}
	case Name:
		return &Wrong{"action.tool_name", "a step cannot be the action of a step", "the name of another tool"}
	}

	if s.Input = m["tool_input"]; len(s.Input) == 0 || string(s.Input) == "null" {
		s.Input = json.RawMessage("{}")
	}

	return nil
}

func (s *Said) outcome(word string) {
	switch o := Status(strings.ToLower(word)); o {
	case "":
	case Done, Failed:
		s.Outcome = o
	default:
		s.Warnings = append(s.Warnings, fmt.Sprintf("sub_task_outcome %q says nothing; it is done or failed", word))
	}
}

func (s *Said) end(status, message string) {
	s.Status, s.Message = strings.ToLower(status), message
	if !slices.Contains([]string{Solved, Partial, Stuck}, s.Status) {
		s.Status = Solved
	}
	if s.Message == "" {
		s.Message = s.Summary
	}
}

// Name is what a model calls a step by.
const Name = "agent_step"

// How a run in phases says that it ends.
const (
	Solved  = "solved"
	Partial = "partial"
	Stuck   = "stuck"
)

// Take keeps a step that calls no tool, and says what the model hears of it (AYA-07).
func (m *Memory) Take(s Said) (reply any, warnings []string) {
	n := m.AddStep(Step{Phase: s.Phase, Thinking: s.Thinking, Summary: s.Summary})
	m.AddFacts(n, s.Facts...)
	type acknowledged struct {
		Acknowledged bool      `json:"acknowledged"`
		Step         int       `json:"step,omitempty"`
		Version      int       `json:"plan_version,omitempty"`
		SubTasks     []SubTask `json:"sub_tasks,omitempty"`
		Next         string    `json:"current_sub_task,omitempty"`
		Resolved     *bool     `json:"resolved,omitempty"`
	}

	out := acknowledged{Acknowledged: true, Step: n}
	warnings = s.Warnings
	switch s.Phase {
	case Planning:
		warnings = append(slices.Clip(warnings), m.board.SetPlan(s.Goal, s.SubTasks)...)
		p := m.board.Plan()
		out = acknowledged{Acknowledged: true, Version: p.Version, SubTasks: p.SubTasks}
	case Verify:
		if current := m.board.Plan().Current; current != "" && s.Outcome != "" {
			m.board.Update(current, s.Outcome)
			if s.Outcome == Done {
				m.board.Advance()
			}
		}
		out.Next = m.board.Plan().Current
	case Reflect:
		resolved := m.ResolveError(0, s.Summary)
		out.Resolved = &resolved
	}

	return out, warnings
}

// inner is a value that may have been written as a string.
func inner(raw json.RawMessage) json.RawMessage {
	var s string
	if json.Unmarshal(raw, &s) == nil && json.Valid([]byte(s)) {
		return json.RawMessage(s)
	}
	return raw
}

func object(raw json.RawMessage) (map[string]json.RawMessage, bool) {
	var m map[string]json.RawMessage
	err := json.Unmarshal(inner(raw), &m)
	return m, err == nil && m != nil
}

// word is a word, or a number or truth that stands for one; "" for all else.
func word(raw json.RawMessage) string {
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

// texts are the words of a list; a single one may stand without its list.
func texts(raw json.RawMessage) []string {
	var list []json.RawMessage
	if json.Unmarshal(inner(raw), &list) != nil {
		list = []json.RawMessage{raw}
	}

	var out []string
	for _, r := range list {
		if s := word(r); s != "" {
			out = append(out, s)
		}
	}
	return out
}
