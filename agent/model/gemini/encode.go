package gemini

import (
	"bytes"
	"encoding/json"
	"strings"

	"rouse/agent/model"
)

type request struct {
	Contents   []content   `json:"contents"`
	System     *content    `json:"systemInstruction,omitempty"`
	Tools      []tools     `json:"tools,omitempty"`
	ToolConfig *toolConfig `json:"toolConfig,omitempty"`
	Generation *generation `json:"generationConfig,omitempty"`
}

type content struct {
	Role  string `json:"role,omitempty"`
	Parts []part `json:"parts"`
}

type part struct {
	Text      *string         `json:"text,omitempty"`
	Call      *call           `json:"functionCall,omitempty"`
	Result    *result         `json:"functionResponse,omitempty"`
	Signature json.RawMessage `json:"thoughtSignature,omitempty"`
}

type call struct {
	ID   string          `json:"id,omitempty"`
	Name string          `json:"name"`
	Args json.RawMessage `json:"args"`
}

type result struct {
	ID       string `json:"id,omitempty"`
	Name     string `json:"name"`
	Response any    `json:"response"`
}

type tools struct {
	Functions []function `json:"functionDeclarations"`
}

type function struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Parameters  *schema         `json:"parameters,omitempty"`
	JSONSchema  json.RawMessage `json:"parametersJsonSchema,omitempty"`
}

type toolConfig struct {
	Calling calling `json:"functionCallingConfig"`
}

type calling struct {
	Mode string `json:"mode"`
}

type generation struct {
	MaxOutputTokens int      `json:"maxOutputTokens,omitempty"`
	Temperature     *float64 `json:"temperature,omitempty"`
}

// anySignature is what the API takes in place of a signature that nobody has.
var anySignature = json.RawMessage(`"skip_thought_signature_validator"`)

func (t *turn) encode() request {
	var out request
	if t.r.System != "" {
		out.System = &content{Parts: []part{{Text: &t.r.System}}}
	}
	for _, m := range t.r.Messages {
		out.add(t.content(m))
	}
	if t.r.MaxOutput > 0 || t.r.Temperature != nil {
		out.Generation = &generation{t.r.MaxOutput, t.r.Temperature}
	}
	if len(t.r.Tools) == 0 {
		return out
	}
	functions := make([]function, 0, len(t.r.Tools))
	for _, tl := range t.r.Tools {
		functions = append(functions, declare(tl))
	}
	out.Tools = []tools{{functions}}
	if t.r.NoTools { // the calls of the transcript still need their declarations
		out.ToolConfig = &toolConfig{calling{"NONE"}}
	}
	return out
}

// add appends parts; what one role says in a row is one content.
func (r *request) add(role string, parts []part) {
	if len(parts) == 0 {
		return
	}
	if n := len(r.Contents) - 1; n >= 0 && r.Contents[n].Role == role {
		r.Contents[n].Parts = append(r.Contents[n].Parts, parts...)
		return
	}
	r.Contents = append(r.Contents, content{role, parts})
}

func (t *turn) content(m model.Message) (role string, parts []part) {
	switch m.Role {
	case model.RoleTool:
		return "user", []part{{Result: &result{m.CallID, m.Name, response(m.Text)}}}
	case model.RoleAssistant:
	default:
		if m.Text == "" {
			return "user", nil
		}
		return "user", []part{{Text: &m.Text}}
	}
	called := false
	for _, p := range t.p.server.Pieces(m) {
		out := part{Signature: p.Opaque}
		if t.bare {
			out.Signature = nil
		}
		switch {
		case p.Call != nil:
			args := p.Call.Args
			if len(args) == 0 || args[0] != '{' {
				args = json.RawMessage("{}")
			}
			out.Call = &call{p.Call.ID, p.Call.Name, args}
			if !called && out.Signature == nil && t.p.signed.Load() {
				out.Signature = anySignature
			}
			called = true
		case p.Text == "" && out.Signature == nil:
			continue
		default:
			out.Text = &p.Text
		}
		parts = append(parts, out)
	}
	return "model", parts
}

// response is what a tool gave, as an object. What follows it, a notice, stands beside it.
func response(text string) any {
	var object json.RawMessage
	dec := json.NewDecoder(strings.NewReader(text))
	if dec.Decode(&object) != nil || object[0] != '{' || bytes.Contains(object, []byte(`"$ref"`)) || bytes.Contains(object, []byte(`"$defs"`)) {
		return map[string]string{"output": text}
	}
	if rest := strings.TrimSpace(text[dec.InputOffset():]); rest != "" {
		return map[string]any{"output": object, "notice": rest}
	}
	return object
}
