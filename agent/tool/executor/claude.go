package executor

import (
	"cmp"
	"strings"
	"time"

	"rouse/agent/model"
)

// claudeTokens returns a usage of Claude Code, and reports whether there is one.
func claudeTokens(u fields) (model.Usage, bool) {
	read, created := u.count("cache_read_input_tokens"), u.count("cache_creation_input_tokens")
	return model.Usage{Input: u.count("input_tokens") + read + created, Output: u.count("output_tokens"), Cached: read, Written: created}, u != nil
}

// claude reads an event of Claude Code. It returns false for any other output. With --output-format
// json, the program prints only the last event, or a list of all events.
func (r *Reader) claude(kind string, e fields) bool {
	switch kind {
	case "system", "rate_limit_event", "stream_event":
	case "assistant", "user":
		if e["message"] == nil {
			return false
		}
	case "result":
		if e.text("subtype") == "" {
			return false
		}
	default:
		return false
	}

	r.Dialect = "claude"
	if session := e.text("session_id"); session != "" {
		r.Session = clip(session, 100)
	}
	switch kind {
	case "system":
		if name := e.text("model"); name != "" {
			r.Model = clip(name, 100)
		}
	case "assistant":
		r.claudeAnswer(e.object("message"))
	case "user":
		for _, b := range e.object("message").objects("content") {
			if b.text("type") == "tool_result" {
				r.closeCall(b.text("tool_use_id"), claudeText(b), b.isTrue("is_error"))
			}
		}
	case "rate_limit_event":
		r.claudeRateLimit(e.object("rate_limit_info"))
	case "result":
		r.claudeResult(e)
	}
	return true
}

// claudeAnswer reads an answer of the model. Each block of an answer is an event of its own, with
// the same message ID.
func (r *Reader) claudeAnswer(m fields) {
	if m == nil || m.text("model") == "<synthetic>" { // a message of the program, such as an error
		return
	}

	var said strings.Builder
	var calls []fields
	for _, b := range m.objects("content") {
		switch b.text("type") {
		case "text":
			said.WriteString(b.text("text"))
		case "tool_use":
			calls = append(calls, b)
		}
	}

	id := m.text("id")
	again := id != "" && r.seen[id]
	if !again || said.Len() > 0 {
		earlier := r.said
		r.turn(m.text("model"), said.String())
		if again { // same turn: record another step, but do not count another turn
			r.Turns--
			if said.Len() > 0 && len(earlier) < maxText {
				r.said = earlier + "\n" + said.String()
			}
		}
	}
	if u, ok := claudeTokens(m.object("usage")); ok && !again {
		r.addUsage(u)
	}
	if id != "" && len(r.seen) < 100_000 {
		r.seen[id] = true
	}
	for _, c := range calls {
		r.openCall(c.text("id"), c.text("name"), c["input"])
	}
}

// claudeText returns the content of a block, which is a string or a list of blocks.
func claudeText(b fields) string {
	if plain := b.text("content"); plain != "" {
		return plain
	}
	var out strings.Builder
	for _, part := range b.objects("content") {
		out.WriteString(part.text("text"))
	}
	return out.String()
}

// claudeRateLimit reads the rate limit of the account.
func (r *Reader) claudeRateLimit(info fields) {
	if info == nil {
		return
	}
	switch info.text("status") {
	case "rejected", "denied":
		r.Unavailable = true
		r.retryAt(time.Unix(info.count("resetsAt"), 0))
	default: // a later request was accepted
		r.Unavailable, r.RetryAt = false, time.Time{}
	}
}

// claudeResult reads the last event.
func (r *Reader) claudeResult(e fields) {
	r.finish(e.text("result"))
	r.cost(e.dollars("total_cost_usd"))
	if u, ok := claudeTokens(e.object("usage")); ok {
		r.total(u)
	}
	r.Turns = max(r.Turns, min(int(e.count("num_turns")), 1<<20))
	for _, d := range e.objects("permission_denials") {
		if len(r.Refused) < 20 {
			r.Refused = append(r.Refused, clip(d.text("tool_name"), 60))
		}
	}

	why := e.text("result")
	for _, one := range list(e["errors"]) {
		why = cmp.Or(textOf(one), why)
	}
	switch subtype := e.text("subtype"); {
	case subtype == "error_max_turns":
		r.Limit = "turns"
		r.fail(why)
	case strings.Contains(subtype, "budget"):
		r.Limit = "cost"
		r.fail(why)
	case e.isTrue("is_error") || subtype != "success":
		r.fail(cmp.Or(why, strings.ReplaceAll(subtype, "_", " ")))
	default: // an earlier limit did not prevent the success
		r.Unavailable, r.RetryAt = false, time.Time{}
	}
}
