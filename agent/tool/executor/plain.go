package executor

import (
	"cmp"
	"strings"
	"time"

	"rouse/agent/model"
	"rouse/internal/domain"
)

// plain reads the generic form (docs/guides/coding-agents.md): one object, alone or last. It
// returns false for any other output.
func (r *Reader) plain(d fields) bool {
	if d == nil || !d.has("result") && d.text("question") == "" && !d.has("error") {
		return false
	}

	r.Dialect, r.Done = "plain", true
	r.Session, r.Model = clip(d.text("session_id"), 100), clip(d.text("model"), 100)
	r.Question, r.Outcome = d.text("question"), d.text("outcome")
	if d.has("result") {
		r.Text = d.text("result")
		r.turn(r.Model, r.Text)
	}
	r.cost(d.dollars("cost_usd"))
	r.Turns = max(r.Turns, min(int(d.count("turns")), 1<<20))
	if u, ok := claudeTokens(d.object("usage")); ok {
		r.total(model.Usage{Input: u.Input, Output: u.Output, Cached: u.Cached})
	}

	if d.has("error") && string(d["error"]) != "false" && string(d["error"]) != `""` {
		r.fail(cmp.Or(d.text("error"), d.object("error").text("message")))
	}
	if at, err := time.Parse(time.RFC3339, d.text("retry_at")); err == nil {
		r.Unavailable = r.Failed
		r.retryAt(at)
	}
	return true
}

// Prefixes of the lines at the end of an answer that report an outcome or a question. The task of
// the program describes them.
const (
	questionLine = "rouse-question:"
	outcomeLine  = "rouse-outcome:"
)

// splitWords removes an outcome and a question from the end of an answer, and returns them.
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

// chosen returns the outcome if a program may report it, or "".
func chosen(outcome string) domain.Outcome {
	switch o := domain.Outcome(outcome); o {
	case domain.OutcomeSuccess, domain.OutcomeNothing, domain.OutcomePartial, domain.OutcomeError:
		return o
	}
	return ""
}

// retryAt sets the time at which the model can be used again, unless the time is invalid.
func (r *Reader) retryAt(at time.Time) { r.RetryAt = bounded(at, r.now(), longestWait) }
