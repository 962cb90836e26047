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

type tools struct {
	Functions []function `json:"functionDeclarations"`
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

// anySignature is the placeholder that the API accepts for calls without a signature.
var anySignature = json.RawMessage(`"skip_thought_signature_validator"`)

func (t *turn) encode() request {
	var out request
	t.sentLimit = t.p.client.Limit(t.r.MaxOutput)
	if t.sentLimit > 0 || t.r.Temperature != nil {
		out.Generation = &generation{t.sentLimit, t.r.Temperature}
	}

	history, hasImages := t.p.client.FilterImages(t.r.Messages)
	t.sentImages = hasImages
	for _, m := range history {
		role, parts := t.encodeParts(m)
		// Consecutive parts of one role form one content.
		switch last := len(out.Contents) - 1; {
		case len(parts) == 0:
		case last >= 0 && out.Contents[last].Role == role:
			out.Contents[last].Parts = append(out.Contents[last].Parts, parts...)
		default:
			out.Contents = append(out.Contents, content{role, parts})
		}
	}

	if t.r.System != "" {
		out.System = &content{Parts: []part{{Text: &t.r.System}}}
	}
	if len(t.r.Tools) > 0 {
		var all tools
		for _, tool := range t.r.Tools {
			all.Functions = append(all.Functions, encodeTool(tool))
		}
		out.Tools = []tools{all}
		if t.r.NoTools { // the transcript's calls still need their declarations
			out.ToolConfig = &toolConfig{calling{"NONE"}}
		}
	}
	return out
}

func (t *turn) encodeParts(m model.Message) (role string, parts []part) {
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
	for _, p := range t.p.client.ContentBlocks(m) {
		out := part{Signature: p.Opaque}
		if t.dropSignatures {
			out.Signature = nil
		}

		switch {
		case p.Call != nil:
			args := p.Call.Args
			if len(args) == 0 || args[0] != '{' {
				args = json.RawMessage("{}")
			}

			out.Call = &call{p.Call.ID, p.Call.Name, args}
			// The API signs only the first call of an answer, and requires only that signature.
			if !called && out.Signature == nil && t.p.needsSignature.Load() {
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

func imageParts(m model.Message) (parts []part) {
	for _, i := range m.Images {
		parts = append(parts, part{Image: &blob{i.Type, i.Data}})
	}
	return parts
}

// resultObject returns an envelope as an object. A notice after the envelope becomes a separate
// field.
func resultObject(text string) any {
	var object json.RawMessage
	dec := json.NewDecoder(strings.NewReader(text)) // decodes one value and leaves the rest
	if dec.Decode(&object) != nil || object[0] != '{' || bytes.Contains(object, []byte(`"$ref"`)) || bytes.Contains(object, []byte(`"$defs"`)) {
		return map[string]string{"output": text}
	}
	if rest := strings.TrimSpace(text[dec.InputOffset():]); rest != "" {
		return map[string]any{"output": object, "notice": rest}
	}
	return object
}

type schema struct {
	Type        string             `json:"type"`
	Description string             `json:"description,omitempty"`
	Enum        []string           `json:"enum,omitempty"`
	Items       *schema            `json:"items,omitempty"`
	Properties  map[string]*schema `json:"properties,omitempty"`
	Required    []string           `json:"required,omitempty"`
}

// encodeTool declares a tool. For its schema see model.Tool.
func encodeTool(t model.Tool) function {
	f := function{Name: t.Name, Description: t.Description}
	var s schema
	if json.Unmarshal(t.Schema, &s) != nil || len(s.Properties) == 0 {
		return f // the API rejects an object without properties
	}

	if s.translate() {
		f.Parameters = &s
	} else {
		f.JSONSchema = t.Schema
	}
	return f
}

// translate replaces the type names with those of the API. It returns false if only JSON Schema can
// describe the schema.
func (s *schema) translate() bool {
	if s.Type == "object" && len(s.Properties) == 0 || s.Items != nil && !s.Items.translate() {
		return false
	}
	for _, p := range s.Properties {
		if !p.translate() {
			return false
		}
	}
	s.Type = strings.ToUpper(s.Type)
	return true
}
