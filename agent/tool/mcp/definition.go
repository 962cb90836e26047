package mcp

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"rouse/agent/tool"
	"rouse/internal/text"
)

// maxDefinition limits the size of a tool definition, in bytes of JSON. Only the hash of a longer
// definition is kept.
const maxDefinition = 256 << 10

// Definition is a tool as its server describes it.
type Definition struct {
	Name string `json:"name"`
	// Said is the whole definition in JSON with sorted keys. Nil if it is too long.
	Said json.RawMessage `json:"said,omitempty"`
	Hash string          `json:"hash"` // SHA-256 of the whole definition
}

// said holds the fields of a definition that rouse reads.
type said struct {
	Title       string          `json:"title"`
	Description string          `json:"description"`
	Input       json.RawMessage `json:"inputSchema"`
	Output      json.RawMessage `json:"outputSchema"`
	Annotations json.RawMessage `json:"annotations"`
	Execution   struct {
		TaskSupport string `json:"taskSupport"`
	} `json:"execution"`
}

// define converts a tool from the server into a Definition. It sorts JSON keys, so that the order
// in which the server writes them does not matter. It drops icons and metadata, which are not
// shown. All other fields count as part of the definition, including annotations.
//
// Of the task support it keeps only "required", because only that value changes how the tool is
// called.
func define(t *mcp.Tool, taskSupport string) (Definition, error) {
	told := *t
	told.Meta, told.Icons = nil, nil
	raw, err := json.Marshal(&told)
	if err != nil {
		return Definition{}, fmt.Errorf("what it says of a tool is not understood: %w", err)
	}
	var plain any
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(&plain); err != nil {
		return Definition{}, fmt.Errorf("what it says of a tool is not understood: %w", err)
	}
	if fields, ok := plain.(map[string]any); ok && taskSupport == taskRequired {
		fields["execution"] = map[string]string{"taskSupport": taskRequired}
	}
	if raw, err = json.Marshal(plain); err != nil {
		return Definition{}, err
	}

	sum := sha256.Sum256(raw)
	out := Definition{Name: t.Name, Hash: hex.EncodeToString(sum[:])}
	if len(raw) <= maxDefinition {
		out.Said = raw
	}
	return out, nil
}

func (d Definition) said() (s said) {
	_ = json.Unmarshal(d.Said, &s) // empty if the definition was too long to keep
	return s
}

// taskRequired is the task support of a tool that can only be called as a task.
const taskRequired = "required"

// needsTask reports whether the tool can only be called as a task.
func (d Definition) needsTask() bool { return d.said().Execution.TaskSupport == taskRequired }

// Description returns the description for models and people, in plain text.
func (d Definition) Description() string {
	s := d.said()
	if s.Description == "" {
		s.Description = s.Title
	}
	return text.Truncate(text.Clean(s.Description), maxDescription)
}

// Annotations returns the effects that the server declares, or "" if it declares no effects. They
// are shown to the owner but not trusted.
func (d Definition) Annotations() string {
	var compact bytes.Buffer
	if a := d.said().Annotations; len(a) == 0 || json.Compact(&compact, a) != nil || compact.String() == "{}" || compact.String() == "null" {
		return ""
	}
	return text.OneLine(text.Truncate(compact.String(), 500))
}

// Schema returns the schema of the arguments as agents use it. It returns an error if the tool
// cannot be used.
func (d Definition) Schema(server string) (json.RawMessage, error) {
	name := ToolName(server, d.Name)
	switch {
	case !toolPattern.MatchString(name):
		return nil, fmt.Errorf("%q is no name that models take for a tool: letters, digits, - and _, 64 at most", text.Truncate(name, 100))
	case len(d.Said) == 0:
		return nil, fmt.Errorf("what the server says of it has more than %d bytes", maxDefinition)
	}

	schema, err := plainSchema(d.said().Input)
	if err != nil {
		return nil, err
	}
	// Unsupported schemas must be found at approval, not during a run.
	if _, err := (tool.Spec{Name: name, Schema: schema}).Arguments(); err != nil {
		return nil, err
	}
	return schema, nil
}

// misfit describes how the structured part of a result violates the output schema. It returns "" if
// the value fits or the schema cannot be used.
func (d Definition) misfit(value any) string {
	raw := d.said().Output
	if len(raw) == 0 || string(raw) == "null" {
		return ""
	}
	plain, err := plainSchema(raw)
	if err != nil {
		return ""
	}

	var schema jsonschema.Schema
	if err := json.Unmarshal(plain, &schema); err != nil {
		return ""
	}
	whole, err := schema.Resolve(nil)
	if err != nil {
		return ""
	}
	if err := whole.Validate(value); err != nil {
		_, wrong := tool.SchemaPlace(err.Error())
		return text.OneLine(text.Truncate(wrong, 300))
	}
	return ""
}
