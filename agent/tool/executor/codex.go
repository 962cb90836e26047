package executor

import (
	"encoding/json"
	"fmt"
	"strings"

	"rouse/agent/model"
)

// codex reads an event of codex exec --json. It returns false for any other output.
func (r *Reader) codex(kind string, e fields) bool {
	group, what, _ := strings.Cut(kind, ".")
	own := what != "" && (group == "thread" || group == "turn" || group == "item")
	if !own && (kind != "error" || r.Dialect != "codex") {
		return false
	}

	r.Dialect = "codex"
	switch kind {
	case "thread.started":
		r.Session = clip(e.text("thread_id"), 100)
	case "turn.completed":
		if u := e.object("usage"); u != nil {
			r.addUsage(model.Usage{Input: u.count("input_tokens"), Output: u.count("output_tokens"), Cached: u.count("cached_input_tokens")})
		}
		r.finish(r.Text)
		r.Failed = false
	case "turn.failed":
		r.finish(r.Text)
		r.fail(e.object("error").text("message"))
	case "error": // Codex may reconnect; if it does not, turn.failed follows
		r.Why = clip(e.text("message"), 2000)
		r.noteLimit(r.Why)
	case "item.started", "item.completed":
		if i := e.object("item"); i != nil {
			r.codexItem(kind == "item.completed", i)
		}
	}
	return true
}

// codexItem reads one action of Codex.
func (r *Reader) codexItem(completed bool, i fields) {
	id, name, result := i.text("id"), i.text("type"), i.text("status")
	failed := result == "failed" || result == "declined"
	var args any
	switch name {
	case "agent_message":
		if completed {
			r.turn("", i.text("text"))
			r.Text = i.text("text") // the last message is the answer
		}
		return
	case "command_execution":
		args, result = map[string]string{"command": i.text("command")}, i.text("aggregated_output")
		if exit := i.count("exit_code"); exit != 0 {
			failed, result = true, fmt.Sprintf("exit %d\n%s", exit, result)
		}
	case "file_change":
		args = i["changes"]
	case "mcp_tool_call":
		name, args = i.text("server")+"."+i.text("tool"), i["arguments"]
	case "web_search":
		args = map[string]string{"query": i.text("query")}
	case "error":
		if completed {
			r.Why = clip(i.text("message"), 2000)
		}
		return
	default: // reasoning and to-do lists
		return
	}

	if _, begun := r.open[id]; !begun {
		text, err := json.Marshal(args)
		if err != nil {
			text = nil
		}
		r.openCall(id, name, text)
	}
	if completed {
		r.closeCall(id, result, failed)
	}
}
