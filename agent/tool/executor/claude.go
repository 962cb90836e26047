package executor

import (
	"encoding/json"
	"strings"
	"time"

	"rouse/agent/model"
)

// claudeEvent is a line of Claude Code: --output-format json prints the last one alone, or all of them in a list.
type claudeEvent struct {
	Subtype   words           `json:"subtype"`
	Session   words           `json:"session_id"`
	Model     words           `json:"model"`
	Message   json.RawMessage `json:"message"`
	RateLimit json.RawMessage `json:"rate_limit_info"`

	// Of the result.
	IsError flag            `json:"is_error"`
	Result  words           `json:"result"`
	Cost    dollars         `json:"total_cost_usd"`
	Usage   json.RawMessage `json:"usage"`
	Turns   count           `json:"num_turns"`
	Errors  json.RawMessage `json:"errors"`
	Denials json.RawMessage `json:"permission_denials"`
}

type claudeMessage struct {
	ID      words           `json:"id"`
	Model   words           `json:"model"`
	Content json.RawMessage `json:"content"`
	Usage   json.RawMessage `json:"usage"`
}

type claudeBlock struct {
	Type    words           `json:"type"`
	Text    words           `json:"text"`
	ID      words           `json:"id"`
	Name    words           `json:"name"`
	Input   json.RawMessage `json:"input"`
	Of      words           `json:"tool_use_id"`
	Content json.RawMessage `json:"content"`
	IsError flag            `json:"is_error"`
}

type claudeUsage struct {
	Input   count `json:"input_tokens"`
	Output  count `json:"output_tokens"`
	Read    count `json:"cache_read_input_tokens"`
	Created count `json:"cache_creation_input_tokens"`
}

func claudeTokens(raw json.RawMessage) (model.Usage, bool) {
	var u claudeUsage
	ok := object(raw, &u)
	return model.Usage{Input: int64(u.Input + u.Read + u.Created), Output: int64(u.Output), Cached: int64(u.Read), Written: int64(u.Created)}, ok
}

// claude reads an event of Claude Code; false where it is none.
func (r *Reader) claude(kind string, raw json.RawMessage) bool {
	var e claudeEvent
	switch kind {
	case "system", "assistant", "user", "result", "rate_limit_event", "stream_event":
	default:
		return false
	}
	if json.Unmarshal(raw, &e) != nil || kind == "result" && e.Subtype == "" || (kind == "assistant" || kind == "user") && len(e.Message) == 0 {
		return false
	}

	r.Dialect = "claude"
	if e.Session != "" {
		r.Session = clip(string(e.Session), 100)
	}
	switch kind {
	case "system":
		if e.Model != "" {
			r.Model = clip(string(e.Model), 100)
		}
	case "assistant":
		r.claudeAnswer(e.Message)
	case "user":
		r.claudeResults(e.Message)
	case "rate_limit_event":
		r.claudeRateLimit(e.RateLimit)
	case "result":
		r.claudeResult(e)
	}
	return true
}

// claudeAnswer reads an answer of the model. Its blocks come in events of their own, with one id.
func (r *Reader) claudeAnswer(raw json.RawMessage) {
	var m claudeMessage
	if !object(raw, &m) {
		return
	}

	if m.Model == "<synthetic>" { // words of the program, such as an error, as an answer of its model
		return
	}

	var said strings.Builder
	var calls []claudeBlock
	for _, item := range list(m.Content) {
		var b claudeBlock
		if !object(item, &b) {
			continue
		}
		switch b.Type {
		case "text":
			said.WriteString(string(b.Text))
		case "tool_use":
			calls = append(calls, b)
		}
	}

	again := m.ID != "" && r.seen[string(m.ID)]
	if !again || said.Len() > 0 {
		earlier := r.said
		r.turn(string(m.Model), said.String())
		if again { // more of the same turn: a step of the record, and none of the model's
			r.Turns--
			if said.Len() > 0 && len(earlier) < maxText {
				r.said = earlier + "\n" + said.String()
			}
		}
	}
	if u, ok := claudeTokens(m.Usage); ok && !again {
		r.addUsage(u)
	}
	if m.ID != "" && len(r.seen) < 100_000 {
		r.seen[string(m.ID)] = true
	}
	for _, c := range calls {
		r.openCall(string(c.ID), string(c.Name), c.Input)
	}
}

// claudeResults reads what the calls of an answer came to.
func (r *Reader) claudeResults(raw json.RawMessage) {
	var m claudeMessage
	if !object(raw, &m) {
		return
	}
	for _, item := range list(m.Content) {
		var b claudeBlock
		if object(item, &b) && b.Type == "tool_result" {
			r.closeCall(string(b.Of), claudeText(b.Content), bool(b.IsError))
		}
	}
}

// claudeText is the text of a content: a text, or blocks of it.
func claudeText(raw json.RawMessage) string {
	var plain words
	if json.Unmarshal(raw, &plain) == nil && plain != "" {
		return string(plain)
	}
	var out strings.Builder
	for _, item := range list(raw) {
		var b claudeBlock
		if object(item, &b) {
			out.WriteString(string(b.Text))
		}
	}
	return out.String()
}

// claudeRateLimit reads how its account stands. Most of these say that all is well.
func (r *Reader) claudeRateLimit(raw json.RawMessage) {
	var info struct {
		Status words `json:"status"`
		Resets count `json:"resetsAt"` // seconds since 1970
	}
	if !object(raw, &info) {
		return
	}
	switch info.Status {
	case "rejected", "denied":
		r.Unavailable = true
		r.retryAt(time.Unix(int64(info.Resets), 0))
	default: // it was let through since
		r.Unavailable, r.RetryAt = false, time.Time{}
	}
}

// claudeResult reads the last event.
func (r *Reader) claudeResult(e claudeEvent) {
	r.finish(string(e.Result))
	r.cost(e.Cost)
	if u, ok := claudeTokens(e.Usage); ok {
		r.total(u)
	}
	r.Turns = max(r.Turns, min(int(e.Turns), 1<<20))

	for _, d := range list(e.Denials) {
		var one struct {
			Tool words `json:"tool_name"`
		}
		if object(d, &one) && len(r.Refused) < 20 {
			r.Refused = append(r.Refused, clip(string(one.Tool), 60))
		}
	}

	why := string(e.Result)
	for _, one := range list(e.Errors) {
		var said words
		if json.Unmarshal(one, &said) == nil && said != "" {
			why = string(said)
		}
	}
	switch {
	case e.Subtype == "error_max_turns":
		r.Limit = "turns"
		r.fail(why)
	case strings.Contains(string(e.Subtype), "budget"):
		r.Limit = "cost"
		r.fail(why)
	case bool(e.IsError) || e.Subtype != "success":
		if why == "" {
			why = strings.ReplaceAll(string(e.Subtype), "_", " ")
		}
		r.fail(why)
	default: // a limit on its way did not keep it from its end
		r.Unavailable, r.RetryAt = false, time.Time{}
	}
}
