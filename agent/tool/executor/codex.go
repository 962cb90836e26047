package executor

import (
	"encoding/json"
	"fmt"
	"strings"

	"rouse/agent/model"
)

// codexEvent is a line of codex exec --json.
type codexEvent struct {
	Thread  words           `json:"thread_id"`
	Item    json.RawMessage `json:"item"`
	Usage   json.RawMessage `json:"usage"`
	Error   json.RawMessage `json:"error"`
	Message words           `json:"message"`
}

// codexItem is what happens within a turn: which fields it has its type says.
type codexItem struct {
	ID      words `json:"id"`
	Type    words `json:"type"`
	Text    words `json:"text"`
	Status  words `json:"status"`
	Message words `json:"message"`

	Command words           `json:"command"`
	Output  words           `json:"aggregated_output"`
	Exit    *count          `json:"exit_code"`
	Changes json.RawMessage `json:"changes"`
	Server  words           `json:"server"`
	Tool    words           `json:"tool"`
	Args    json.RawMessage `json:"arguments"`
	Query   words           `json:"query"`
}

// codex reads an event of Codex; false where it is none.
func (r *Reader) codex(kind string, raw json.RawMessage) bool {
	group, what, _ := strings.Cut(kind, ".")
	own := what != "" && (group == "thread" || group == "turn" || group == "item")
	if !own && (kind != "error" || r.Dialect != "codex") {
		return false
	}
	var e codexEvent
	if json.Unmarshal(raw, &e) != nil {
		return false
	}

	r.Dialect = "codex"
	switch kind {
	case "thread.started":
		r.Session = clip(string(e.Thread), 100)
	case "turn.completed":
		var u struct {
			Input  count `json:"input_tokens"`
			Cached count `json:"cached_input_tokens"`
			Output count `json:"output_tokens"`
		}
		if object(e.Usage, &u) {
			r.addUsage(model.Usage{Input: int64(u.Input), Output: int64(u.Output), Cached: int64(u.Cached)})
		}
		r.finish(r.Text)
		r.Failed = false
	case "turn.failed":
		var failure struct {
			Message words `json:"message"`
		}
		object(e.Error, &failure)
		r.finish(r.Text)
		r.fail(string(failure.Message))
	case "error": // it may connect again after it: turn.failed says that it did not
		r.Why = clip(string(e.Message), 2000)
		r.noteLimit(r.Why)
	case "item.started", "item.completed":
		r.codexItem(kind == "item.completed", e.Item)
	}
	return true
}

// codexItem reads one thing that Codex does.
func (r *Reader) codexItem(completed bool, raw json.RawMessage) {
	var i codexItem
	if !object(raw, &i) {
		return
	}

	id, failed, result := string(i.ID), i.Status == "failed" || i.Status == "declined", string(i.Status)
	name, args := string(i.Type), any(nil)
	switch i.Type {
	case "agent_message":
		if completed {
			r.turn("", string(i.Text))
			r.Text = string(i.Text) // the last one is its answer
		}
		return
	case "command_execution":
		args, result = map[string]string{"command": string(i.Command)}, string(i.Output)
		if i.Exit != nil && *i.Exit != 0 {
			failed, result = true, fmt.Sprintf("exit %d\n%s", *i.Exit, result)
		}
	case "file_change":
		args = i.Changes
	case "mcp_tool_call":
		name, args = string(i.Server)+"."+string(i.Tool), i.Args
	case "web_search":
		args = map[string]string{"query": string(i.Query)}
	case "error":
		if completed {
			r.Why = clip(string(i.Message), 2000)
		}
		return
	default: // what it thinks, and its list
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
