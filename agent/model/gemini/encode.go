package gemini

import (
	"bytes"
	"encoding/json"
	"strings"

	"rouse/agent/model"
	"rouse/agent/model/wire"
)

// request is what stands behind the contents, the system prompt and the tools.
type request struct {
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
	Image     *blob           `json:"inlineData,omitempty"`
	Signature json.RawMessage `json:"thoughtSignature,omitempty"`
}

type blob struct {
	MimeType string `json:"mimeType"`
	Data     []byte `json:"data"`
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

// encoder is what the writing of a history depends on.
type encoder struct {
	p                              *Provider
	dropSignatures, needsSignature bool
}

func (t *turn) encode() (*wire.BodyBuilder, error) {
	var rest request
	if t.r.MaxOutput > 0 || t.r.Temperature != nil {
		rest.Generation = &generation{t.r.MaxOutput, t.r.Temperature}
	}

	if t.r.NoTools && len(t.r.Tools) > 0 { // the calls of the transcript still need their declarations
		rest.ToolConfig = &toolConfig{calling{"NONE"}}
	}

	by := encoder{t.p, t.dropSignatures, t.p.needsSignature.Load()}
	draft := wire.CacheOf(t.r.Draft, by)
	seen, shown := t.p.client.FilterImages(t.r.Messages)
	t.sentImages = shown
	contents, err := draft.Messages(seen, "", by.encodeMessage)
	if err != nil {
		return nil, err
	}

	b := &wire.BodyBuilder{}
	b.Raw(`{"contents":`)
	if last := appendContents(b, contents); last == "" {
		b.Raw("null")
	} else {
		b.Raw("]}]")
	}

	if t.r.System != "" {
		b.Raw(`,"systemInstruction":`)
		b.Value(content{Parts: []part{{Text: &t.r.System}}})
	}

	if len(t.r.Tools) > 0 {
		functions, err := draft.Tools(t.r.Tools, func(t model.Tool) any { return encodeTool(t) })
		if err != nil {
			return nil, err
		}
		b.Raw(`,"tools":[{"functionDeclarations":[`)
		b.Shared(functions)
		b.Raw("]}]")
	}

	b.EndWith(rest)
	return b, nil
}

// appendContents appends the contents, and says whose the last one is.
func appendContents(b *wire.BodyBuilder, contents []wire.EncodedMessage) (last string) {
	b.Grow(len(contents))
	for _, c := range contents {
		b.Shared(c.JSON)
		last = c.Role
	}
	return last
}

// separator parts what one role says from what was said before: what one says in a row is one
// content.
func separator(before, role string) string {
	switch before {
	case role:
		return ","
	case "":
		return `[{"role":"` + role + `","parts":[`
	}
	return `]},{"role":"` + role + `","parts":[`
}

func (w encoder) encodeMessage(out *wire.JSONBuilder, before string, m model.Message) (role string, opaque bool) {
	role, parts := w.encodeContent(m)
	for _, p := range parts {
		out.Raw(separator(before, role))
		out.Value(p)
		before = role
	}
	return role, false
}

func (w encoder) encodeContent(m model.Message) (role string, parts []part) {
	switch m.Role {
	case model.RoleTool:
		return "user", append([]part{{Result: &result{m.CallID, m.Name, resultObject(m.Text)}}}, imageParts(m)...)
	case model.RoleAssistant:
	default:
		parts = imageParts(m)
		if m.Text != "" {
			parts = append(parts, part{Text: &m.Text})
		}
		return "user", parts
	}

	called := false
	for _, p := range w.p.client.ContentBlocks(m) {
		out := part{Signature: p.Opaque}
		if w.dropSignatures {
			out.Signature = nil
		}

		switch {
		case p.Call != nil:
			args := p.Call.Args
			if len(args) == 0 || args[0] != '{' {
				args = json.RawMessage("{}")
			}

			out.Call = &call{p.Call.ID, p.Call.Name, args}
			if !called && out.Signature == nil && w.needsSignature {
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

// imageParts are those of a message.
func imageParts(m model.Message) (parts []part) {
	for _, i := range m.Images {
		parts = append(parts, part{Image: &blob{i.Type, i.Data}})
	}
	return parts
}

// resultObject is what a tool gave, as an object. What follows it, a notice, stands beside it.
func resultObject(text string) any {
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
