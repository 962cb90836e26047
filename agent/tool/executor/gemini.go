package executor

import (
	"encoding/json"
	"strings"

	"rouse/agent/model"
)

// geminiEvent is a line of Gemini CLI with --output-format stream-json.
type geminiEvent struct {
	Session words           `json:"session_id"`
	Model   words           `json:"model"`
	Role    words           `json:"role"`
	Content words           `json:"content"`
	Tool    words           `json:"tool_name"`
	ID      words           `json:"tool_id"`
	Params  json.RawMessage `json:"parameters"`
	Status  words           `json:"status"`
	Output  words           `json:"output"`
	Error   json.RawMessage `json:"error"`
	Message words           `json:"message"`
	Stats   json.RawMessage `json:"stats"`
}

// geminiFailure is an error of Gemini CLI.
type geminiFailure struct {
	Type    words           `json:"type"`
	Message words           `json:"message"`
	Code    json.RawMessage `json:"code"`
}

// gemini reads an event of Gemini CLI; false where it is none. Its answer comes in pieces.
func (r *Reader) gemini(kind string, raw json.RawMessage) bool {
	var e geminiEvent
	if json.Unmarshal(raw, &e) != nil {
		return false
	}
	switch kind {
	case "init":
		if e.Session == "" && e.Model == "" {
			return false
		}
	case "message", "tool_use", "tool_result", "error", "result":
		if r.Dialect != "gemini" && (kind != "result" || e.Status == "") {
			return false
		}
	default:
		return false
	}

	r.Dialect = "gemini"
	switch kind {
	case "init":
		r.Session, r.Model = clip(string(e.Session), 100), clip(string(e.Model), 100)
	case "message":
		if e.Role == "assistant" {
			if r.pieces.Len() == 0 {
				r.turn("", string(e.Content))
			} else {
				r.Written += int64(len(e.Content))
			}
			if r.pieces.Len() < maxWhole {
				r.pieces.WriteString(string(e.Content))
			}
		}
	case "tool_use":
		if before := r.pieces.String(); strings.TrimSpace(before) != "" {
			r.said = before
		}
		r.pieces.Reset() // what comes behind the calls is the answer
		r.openCall(string(e.ID), string(e.Tool), e.Params)
	case "tool_result":
		r.closeCall(string(e.ID), string(e.Output), e.Status == "error")
	case "error":
		r.Why = clip(string(e.Message), 2000)
		r.noteLimit(r.Why)
	case "result":
		r.finish(r.pieces.String())
		r.geminiStats(e.Stats)
		if e.Status != "success" {
			r.geminiError(e.Error)
		}
	}
	return true
}

// geminiWhole reads the one document of --output-format json; false where it is none.
func (r *Reader) geminiWhole(raw json.RawMessage) bool {
	var d struct {
		Session  words           `json:"session_id"`
		Response *words          `json:"response"`
		Stats    json.RawMessage `json:"stats"`
		Error    json.RawMessage `json:"error"`
	}
	var stats map[string]json.RawMessage
	if !object(raw, &d) || d.Response == nil && !object(d.Stats, &stats) {
		return false
	}

	r.Dialect, r.Done, r.Session = "gemini", true, clip(string(d.Session), 100)
	r.geminiStats(d.Stats)
	if d.Response != nil {
		r.Text = string(*d.Response)
		r.turn("", r.Text)
	}
	if len(d.Error) > 0 && string(d.Error) != "null" {
		r.geminiError(d.Error)
	}
	return true
}

func (r *Reader) geminiError(raw json.RawMessage) {
	var f geminiFailure
	object(raw, &f)
	if f.Type == "FatalTurnLimitedError" || string(f.Code) == "53" {
		r.Limit = "turns"
	}
	r.fail(string(f.Message))
}

// geminiStats reads the tokens of all models, or of the one that is told of without a name.
func (r *Reader) geminiStats(raw json.RawMessage) {
	var s struct {
		Models map[string]struct {
			Tokens struct {
				Prompt     count `json:"prompt"`
				Candidates count `json:"candidates"`
				Cached     count `json:"cached"`
				Thoughts   count `json:"thoughts"`
			} `json:"tokens"`
		} `json:"models"`
		Input  count `json:"input_tokens"`
		Output count `json:"output_tokens"`
		Cached count `json:"cached"`
	}
	if !object(raw, &s) {
		return
	}

	u := model.Usage{Input: int64(s.Input), Output: int64(s.Output), Cached: int64(s.Cached)}
	for _, m := range s.Models {
		if s.Input+s.Output == 0 {
			u.Input, u.Output, u.Cached = u.Input+int64(m.Tokens.Prompt), u.Output+int64(m.Tokens.Candidates+m.Tokens.Thoughts), u.Cached+int64(m.Tokens.Cached)
		}
	}
	r.total(u)
}
