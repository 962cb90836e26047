package executor

import (
	"strings"

	"rouse/agent/model"
)

// gemini reads an event of Gemini CLI with --output-format stream-json. It returns false for any
// other output. The answer arrives in pieces.
func (r *Reader) gemini(kind string, e fields) bool {
	switch kind {
	case "init":
		if e.text("session_id") == "" && e.text("model") == "" {
			return false
		}
	case "message", "tool_use", "tool_result", "error", "result":
		if r.Dialect != "gemini" && (kind != "result" || e.text("status") == "") {
			return false
		}
	default:
		return false
	}

	r.Dialect = "gemini"
	switch kind {
	case "init":
		r.Session, r.Model = clip(e.text("session_id"), 100), clip(e.text("model"), 100)
	case "message":
		if content := e.text("content"); e.text("role") == "assistant" {
			if r.pieces.Len() == 0 {
				r.turn("", content)
			} else {
				r.Written += int64(len(content))
			}
			if r.pieces.Len() < maxWhole {
				r.pieces.WriteString(content)
			}
		}
	case "tool_use":
		if before := r.pieces.String(); strings.TrimSpace(before) != "" {
			r.said = before
		}
		r.pieces.Reset() // the answer is the text after the last call
		r.openCall(e.text("tool_id"), e.text("tool_name"), e["parameters"])
	case "tool_result":
		r.closeCall(e.text("tool_id"), e.text("output"), e.text("status") == "error")
	case "error":
		r.Why = clip(e.text("message"), 2000)
		r.noteLimit(r.Why)
	case "result":
		r.finish(r.pieces.String())
		r.geminiStats(e.object("stats"))
		if e.text("status") != "success" {
			r.geminiError(e.object("error"))
		}
	}
	return true
}

// geminiWhole reads the document of --output-format json. It returns false for any other output.
func (r *Reader) geminiWhole(d fields) bool {
	if !d.has("response") && d.object("stats") == nil {
		return false
	}

	r.Dialect, r.Done, r.Session = "gemini", true, clip(d.text("session_id"), 100)
	r.geminiStats(d.object("stats"))
	if d.has("response") {
		r.Text = d.text("response")
		r.turn("", r.Text)
	}
	if d.has("error") {
		r.geminiError(d.object("error"))
	}
	return true
}

func (r *Reader) geminiError(f fields) {
	if f.text("type") == "FatalTurnLimitedError" || string(f["code"]) == "53" {
		r.Limit = "turns"
	}
	r.fail(f.text("message"))
}

// geminiStats reads the total number of tokens, or else adds up the tokens of all models.
func (r *Reader) geminiStats(s fields) {
	if s == nil {
		return
	}
	u := model.Usage{Input: s.count("input_tokens"), Output: s.count("output_tokens"), Cached: s.count("cached")}
	if u.Input+u.Output == 0 {
		for _, m := range s.object("models") {
			t := fieldsOf(m).object("tokens")
			u.Input, u.Output, u.Cached = u.Input+t.count("prompt"), u.Output+t.count("candidates")+t.count("thoughts"), u.Cached+t.count("cached")
		}
	}
	r.total(u)
}
