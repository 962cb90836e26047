package loop

import (
	"fmt"
	"slices"
	"strings"

	"rouse/agent/model"
)

const noticePrefix = "[System Notice] "

// The two empty endings (OSA-04).
const (
	emptyAnswers    = "The model gave only empty answers and called no tool."
	emptyAfterTools = "The model ended without a word after its tool calls; see what they did."
)

// stage keeps a notice for the next request alone.
func (r *run) stage(format string, args ...any) {
	r.staged = append(r.staged, noticePrefix+fmt.Sprintf(format, args...))
}

// warn tells the model when its steps run out. The budget comes before what else is staged
// (OSA-05).
func (r *run) warn(charged int) {
	if r.Policy.Plain || r.Bounds.Steps <= 0 {
		return
	}
	if left := r.Bounds.Steps - charged + 1; left <= r.Policy.BudgetWarning {
		r.staged = slices.Insert(r.staged, 0, fmt.Sprintf("%s%d of %d steps remaining.", noticePrefix, left, r.Bounds.Steps))
	}
}

// nudge asks again after an empty answer, at most so often in a row (OSA-04).
func (r *run) nudge() (over bool) {
	r.empty++
	if r.empty <= r.Policy.EmptyRetries {
		r.stage("Your last answer was empty. Go on with the task: call a tool, or say the result in words.")
		return false
	}
	r.result.Exit, r.result.Outcome, r.result.Summary = EmptyResponse, "error", emptyAnswers
	if r.worked {
		r.result.Outcome, r.result.Summary = "partial", emptyAfterTools
	}
	r.result.Error = "the model gave only empty answers"
	return true
}

// noticed is the history with the staged notices at its end: within the tool result that
// stands there, since many models take no user's word between a tool and themselves, else
// as a message of the user. The history itself never holds them.
func (r *run) noticed() []model.Message {
	if len(r.staged) == 0 {
		return r.messages
	}
	text := strings.Join(r.staged, "\n")
	last := len(r.messages) - 1
	if last < 0 || r.messages[last].Role != model.RoleTool {
		return append(slices.Clip(r.messages), model.Message{Role: model.RoleUser, Text: text})
	}
	m := r.messages[last]
	m.Text += "\n\n" + text
	return append(slices.Clip(r.messages[:last]), m)
}
