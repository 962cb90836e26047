package executor

import (
	"encoding/json"
	"strings"
	"time"

	"rouse/agent/model"
	"rouse/internal/domain"
)

// plain reads the form for programs that have none of their own (docs/executors.md): one object, alone or last.
func (r *Reader) plain(raw json.RawMessage) bool {
	var d struct {
		Result   *words          `json:"result"`
		Error    json.RawMessage `json:"error"`
		Outcome  words           `json:"outcome"`
		Question words           `json:"question"`
		Session  words           `json:"session_id"`
		Model    words           `json:"model"`
		Cost     dollars         `json:"cost_usd"`
		Turns    count           `json:"turns"`
		Usage    json.RawMessage `json:"usage"`
		RetryAt  words           `json:"retry_at"`
	}
	if !object(raw, &d) || d.Result == nil && d.Question == "" && (len(d.Error) == 0 || string(d.Error) == "null") {
		return false
	}

	r.Dialect, r.Done = "plain", true
	r.Session, r.Model = clip(string(d.Session), 100), clip(string(d.Model), 100)
	r.Question, r.Outcome = string(d.Question), string(d.Outcome)
	if d.Result != nil {
		r.Text = string(*d.Result)
		r.turn(r.Model, r.Text)
	}
	r.cost(d.Cost)
	r.Turns = max(r.Turns, min(int(d.Turns), 1<<20))
	if u, ok := claudeTokens(d.Usage); ok {
		r.total(model.Usage{Input: u.Input, Output: u.Output, Cached: u.Cached})
	}

	if len(d.Error) > 0 && string(d.Error) != "null" && string(d.Error) != "false" && string(d.Error) != `""` {
		var why words
		var inner struct {
			Message words `json:"message"`
		}
		if _ = json.Unmarshal(d.Error, &why); why == "" && object(d.Error, &inner) {
			why = inner.Message
		}
		r.fail(string(why))
	}
	if at, err := time.Parse(time.RFC3339, string(d.RetryAt)); err == nil {
		r.Unavailable = r.Failed
		r.retryAt(at)
	}
	return true
}

// The lines with which an answer may end, in any form: what the program is told of in its task.
const (
	questionLine = "rouse-question:"
	outcomeLine  = "rouse-outcome:"
)

// readWords takes the last lines of an answer for what they say to the host.
func (r *Reader) readWords() {
	r.Text, r.Outcome, r.Question = splitWords(r.Text, r.Outcome, r.Question)
}

// splitWords cuts an outcome or a question off an answer.
func splitWords(answer, outcome, question string) (rest, _, _ string) {
	lines := strings.Split(strings.TrimSpace(answer), "\n")
	for len(lines) > 0 {
		last := strings.Trim(strings.TrimSpace(lines[len(lines)-1]), "`*")
		switch {
		case last == "":
		case hasPrefixFold(last, questionLine) && question == "":
			question = strings.TrimSpace(last[len(questionLine):])
		case hasPrefixFold(last, outcomeLine) && outcome == "":
			outcome = strings.ToLower(strings.TrimSpace(last[len(outcomeLine):]))
		default:
			return strings.Join(lines, "\n"), outcome, question
		}
		lines = lines[:len(lines)-1]
	}
	return "", outcome, question
}

func hasPrefixFold(s, prefix string) bool {
	return len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix)
}

// chosen is an outcome that a program may choose; "" for any other.
func chosen(outcome string) domain.Outcome {
	switch o := domain.Outcome(outcome); o {
	case domain.OutcomeSuccess, domain.OutcomeNothing, domain.OutcomePartial, domain.OutcomeError:
		return o
	}
	return ""
}

// retryAt notes when the model can be asked again, unless that is nonsense.
func (r *Reader) retryAt(at time.Time) { r.RetryAt = bounded(at, r.now(), longestWait) }
