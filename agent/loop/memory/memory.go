package memory

import (
	"slices"
	"strings"
	"time"
)

// Phase is the purpose of a step.
type Phase string

// The values of Phase.
const (
	Reason   Phase = "reason"
	Planning Phase = "plan"
	Act      Phase = "act"
	Verify   Phase = "verify"
	Reflect  Phase = "reflect"
	Feedback Phase = "feedback"
	End      Phase = "end"
)

// Phases returns all phases in the order in which a task goes through them.
func Phases() []Phase { return []Phase{Reason, Planning, Act, Verify, Reflect, Feedback, End} }

// Step is a recorded step.
type Step struct {
	Number            int
	Phase             Phase
	Thinking, Summary string
	Tool              string // empty if no tool was called
	Input, Output     string // in full
	Failed            bool
	Duration          time.Duration
}

// Error is a failed call and its resolution.
type Error struct {
	Step          int
	Tool, Message string
	Resolved      bool
	Resolution    string
}

// Fact is a fact that the run has found.
type Fact struct {
	Fact string
	Step int
	Tool string // tool of the last act before it, which is probably the source
}

// Memory is the working memory of one run.
type Memory struct {
	board  *Board
	steps  []Step
	errors []Error
	facts  []Fact

	lastTool   string         // of the last act
	actions    int            // number of acts
	idleSteps  int            // consecutive steps without an act
	last       string         // signature of the last action
	streak     int            // consecutive repetitions of it
	made       map[string]int // number of calls by signature
	failed     map[string]int // number of failures by signature
	failedTool string         // tool of the action that failed last
	lastFailed string         // signature of that action
	refused    int            // calls that failed for lack of permission
}

// New returns an empty memory with its plan on the board. If b is nil, it creates a board.
func New(b *Board) *Memory {
	if b == nil {
		b = &Board{}
	}
	return &Memory{board: b, made: map[string]int{}, failed: map[string]int{}}
}

// Board returns the board of the plan.
func (m *Memory) Board() *Board { return m.board }

// Actions returns the number of actions so far.
func (m *Memory) Actions() int { return m.actions }

// IdleSteps returns the number of consecutive steps without an act.
func (m *Memory) IdleSteps() int { return m.idleSteps }

// Streak returns the signature of the last action and the number of consecutive repetitions.
func (m *Memory) Streak() (signature string, times int) { return m.last, m.streak }

// ResetStreaks resets idle steps and repetitions. It is called after a message from a person.
func (m *Memory) ResetStreaks() { m.idleSteps, m.last, m.streak = 0, "", 0 }

// AddStep records a step and returns its number.
func (m *Memory) AddStep(s Step) int {
	s.Number = len(m.steps) + 1
	m.steps = append(m.steps, s)
	if s.Phase == Act {
		m.idleSteps = 0
	} else {
		m.idleSteps++
	}

	return s.Number
}

// AddError records an error.
func (m *Memory) AddError(e Error) { m.errors = append(m.errors, e) }

// ResolveError marks the latest open error of a step as resolved. step 0 means any step.
func (m *Memory) ResolveError(step int, how string) bool {
	for i := len(m.errors) - 1; i >= 0; i-- {
		if e := &m.errors[i]; !e.Resolved && (step == 0 || e.Step == step) {
			e.Resolved, e.Resolution = true, how
			return true
		}
	}
	return false
}

// AddFacts records facts without duplicates, and returns the number of new facts.
func (m *Memory) AddFacts(step int, facts ...string) int {
	before := len(m.facts)
	for _, f := range facts {
		f = strings.TrimSpace(f)
		if f == "" || slices.ContainsFunc(m.facts, func(old Fact) bool { return old.Fact == f }) {
			continue
		}
		m.facts = append(m.facts, Fact{Fact: f, Step: step, Tool: m.lastTool})
	}

	return len(m.facts) - before
}

// Action is a call of a tool and its result.
type Action struct {
	Phase             Phase
	Thinking, Summary string
	Tool              string
	Signature         string // of the tool and its arguments
	Input, Output     string
	Failed            bool
	Kind              string // of a failure
	Duration          time.Duration
}

// RecordAction records a call as a step.
func (m *Memory) RecordAction(a Action) int {
	n := m.AddStep(Step{Phase: a.Phase, Thinking: a.Thinking, Summary: a.Summary, Tool: a.Tool, Input: a.Input, Output: a.Output, Failed: a.Failed, Duration: a.Duration})
	// Planning and questions count as repetitions, too, but only an act adds steps to the run.
	if a.Signature != m.last {
		m.last, m.streak = a.Signature, 0
	}
	m.streak++
	m.made[a.Signature]++
	if a.Phase == Act {
		m.actions++
		m.lastTool = a.Tool
	}

	if !a.Failed {
		return n
	}

	m.failed[a.Signature]++
	m.failedTool, m.lastFailed = a.Tool, a.Signature
	m.AddError(Error{Step: n, Tool: a.Tool, Message: a.Output})
	if CategoryOf(a.Kind, a.Output) == Permission {
		m.refused++
	}

	return n
}

// RecordStep records a step without a tool call, and returns the reply to the model.
func (m *Memory) RecordStep(s ParsedStep) (reply any, warnings []string) {
	n := m.AddStep(Step{Phase: s.Phase, Thinking: s.Thinking, Summary: s.Summary})
	recorded := m.AddFacts(n, s.Facts...)
	type acknowledged struct {
		Acknowledged bool      `json:"acknowledged"`
		Step         int       `json:"step,omitempty"`
		Version      int       `json:"plan_version,omitempty"`
		SubTasks     []SubTask `json:"sub_tasks,omitempty"`
		Resolved     *bool     `json:"resolved,omitempty"`
	}
	type verified struct {
		Acknowledged bool    `json:"acknowledged"`
		Facts        int     `json:"facts_recorded"`
		Outcome      *Status `json:"sub_task_outcome"` // null if no outcome was given
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
			// After a failure the sub-task stays current.
			m.board.Update(current, s.Outcome)
			if s.Outcome == Done {
				m.board.Advance()
			}
		}

		reply := verified{Acknowledged: true, Facts: recorded}
		if s.Outcome != "" {
			reply.Outcome = &s.Outcome
		}
		return reply, warnings
	case Reflect:
		resolved := m.ResolveError(0, s.Summary)
		out.Resolved = &resolved
	}

	return out, warnings
}

// Category is the category of a failure.
type Category string

// The categories, in the order in which they are checked.
const (
	NotFound     Category = "not_found"
	Permission   Category = "permission"
	Timeout      Category = "timeout"
	InvalidInput Category = "invalid_input"
	Runtime      Category = "runtime"
)

// CategoryOf returns the category of a failure by its kind, or by the words of its message if the
// kind is not specific.
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

	// The remaining kinds, such as the failure of a command, do not indicate a cause.
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
