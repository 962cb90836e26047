package memory

import (
	"slices"
	"strings"
	"time"
)

// Phase says what a step is for.
type Phase string

// The phases.
const (
	Reason   Phase = "reason"
	Planning Phase = "plan"
	Act      Phase = "act"
	Verify   Phase = "verify"
	Reflect  Phase = "reflect"
	Feedback Phase = "feedback"
	End      Phase = "end"
)

// Phases are all of them, in the order in which a task goes through them.
func Phases() []Phase { return []Phase{Reason, Planning, Act, Verify, Reflect, Feedback, End} }

// Step is what was done once.
type Step struct {
	Number            int
	Phase             Phase
	Thinking, Summary string
	Tool              string // "" when no tool was called
	Input, Output     string // whole
	Failed            bool
	Took              time.Duration
}

// Error is a call that failed, and what became of it.
type Error struct {
	Step          int
	Tool, Message string
	Resolved      bool
	Resolution    string
}

// Fact is something that was found out.
type Fact struct {
	Fact string
	Step int
	Tool string // of the act that it was learned from
}

// Memory is the working memory of one run.
type Memory struct {
	board  *Board
	steps  []Step
	errors []Error
	facts  []Fact

	tool    string         // of the last act
	acts    int            // so far
	idle    int            // steps in a row that were no act
	last    string         // signature of the last action
	again   int            // how often in a row it was taken
	times   map[string]int // how often each action was taken
	failed  map[string]int // how often each action failed
	worst   string         // the tool of the action that failed last
	worstAt string         // its signature
	refused int            // calls that failed for want of permission
}

// New is an empty memory whose plan is on the board.
func New(b *Board) *Memory {
	if b == nil {
		b = &Board{}
	}
	return &Memory{board: b, times: map[string]int{}, failed: map[string]int{}}
}

// Board is where the plan is.
func (m *Memory) Board() *Board { return m.board }

// Acts counts the actions so far.
func (m *Memory) Acts() int { return m.acts }

// Idle counts the steps in a row that were no act.
func (m *Memory) Idle() int { return m.idle }

// Row says which action was taken last and how often in a row.
func (m *Memory) Row() (signature string, times int) { return m.last, m.again }

// Heard takes up that somebody said something: what came before is no reason to stop now.
func (m *Memory) Heard() { m.idle, m.last, m.again = 0, "", 0 }

// AddStep keeps a step and gives its number.
func (m *Memory) AddStep(s Step) int {
	s.Number = len(m.steps) + 1
	m.steps = append(m.steps, s)
	if s.Phase == Act {
		m.idle = 0
	} else {
		m.idle++
	}

	return s.Number
}

// AddError keeps what went wrong.
func (m *Memory) AddError(e Error) { m.errors = append(m.errors, e) }

// ResolveError says what became of the latest open error of a step; of any step with 0.
func (m *Memory) ResolveError(step int, how string) bool {
	for i := len(m.errors) - 1; i >= 0; i-- {
		if e := &m.errors[i]; !e.Resolved && (step == 0 || e.Step == step) {
			e.Resolved, e.Resolution = true, how
			return true
		}
	}
	return false
}

// AddFacts keeps what was found out; what is known is not kept twice.
func (m *Memory) AddFacts(step int, facts ...string) {
	for _, f := range facts {
		f = strings.TrimSpace(f)
		if f == "" || slices.ContainsFunc(m.facts, func(old Fact) bool { return old.Fact == f }) {
			continue
		}
		m.facts = append(m.facts, Fact{Fact: f, Step: step, Tool: m.tool})
	}
}

// Action is a call of a tool and what it came to.
type Action struct {
	Phase             Phase
	Thinking, Summary string
	Tool              string
	Signature         string // of the tool and its arguments
	Input, Output     string
	Failed            bool
	Kind              string // of a failure
	Took              time.Duration
}

// Acted keeps a call as a step (AYA-07, AYA-08).
func (m *Memory) Acted(a Action) int {
	n := m.AddStep(Step{Phase: a.Phase, Thinking: a.Thinking, Summary: a.Summary, Tool: a.Tool, Input: a.Input, Output: a.Output, Failed: a.Failed, Took: a.Took})
	m.count(a.Signature)
	if a.Phase == Act {
		m.acts++
		m.tool = a.Tool
	}

	if !a.Failed {
		return n
	}

	m.failed[a.Signature]++
	m.worst, m.worstAt = a.Tool, a.Signature
	m.AddError(Error{Step: n, Tool: a.Tool, Message: a.Output})
	if CategoryOf(a.Kind, a.Output) == Permission {
		m.refused++
	}

	return n
}

// count counts an action.
func (m *Memory) count(signature string) {
	if signature != m.last {
		m.last, m.again = signature, 0
	}
	m.again++
	m.times[signature]++
}

// Category says what sort of failure something was (AYA-10).
type Category string

// The categories, in the order in which they are looked for.
const (
	NotFound     Category = "not_found"
	Permission   Category = "permission"
	Timeout      Category = "timeout"
	InvalidInput Category = "invalid_input"
	Runtime      Category = "runtime"
)

// CategoryOf goes by the kind of a failure where that says enough, else by its words.
func CategoryOf(kind, message string) Category {
	switch kind {
	case "not_found", "tool_not_found":
		return NotFound
	case "rejected", "user_denied":
		return Permission
	case "timeout":
		return Timeout
	case "invalid_args":
		return InvalidInput
	}

	message = strings.ToLower(message)
	for _, c := range []struct {
		category Category
		words    []string
	}{
		{NotFound, []string{"not found", "no such"}},
		{Permission, []string{"permission", "denied"}},
		{Timeout, []string{"timeout", "timed out", "did not end within"}},
		{InvalidInput, []string{"invalid", "validation"}},
	} {
		if slices.ContainsFunc(c.words, func(w string) bool { return strings.Contains(message, w) }) {
			return c.category
		}
	}

	return Runtime
}
