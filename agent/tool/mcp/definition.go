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

// maxDefinition is how long a tool may be as its server tells it, in bytes of JSON. Of a longer one only the hash is kept.
const maxDefinition = 256 << 10

// Definition is a tool as its server tells it.
type Definition struct {
	Name string `json:"name"`
	// Said is all of it, in JSON with sorted keys; nil where it is too long.
	Said json.RawMessage `json:"said,omitempty"`
	Hash string          `json:"hash"` // SHA-256 of all of it
}

// said is what of a definition is looked at.
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

// define keeps what a server says of a tool. The names of texts are sorted, so that the order in which a server writes them changes
// nothing. Left out are the pictures and notes that nobody is shown; all else counts, also what is not believed: an annotation that
// changes is a change.
//
// Of the task support only "required" is kept, because only that changes how a tool is called.
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
	_ = json.Unmarshal(d.Said, &s) // of one that is too long there is nothing
	return s
}

// taskRequired is the task support of a tool that can be called as a task only.
const taskRequired = "required"

// needsTask reports whether the tool can be called as a task only.
func (d Definition) needsTask() bool { return d.said().Execution.TaskSupport == taskRequired }

// Description is what models and people read of it, in plain text.
func (d Definition) Description() string {
	s := d.said()
	if s.Description == "" {
		s.Description = s.Title
	}
	return text.Truncate(text.Clean(s.Description), maxDescription)
}

// Annotations are what the server says of its effects, which nobody believes; "" where it says nothing.
func (d Definition) Annotations() string {
	var compact bytes.Buffer
	if a := d.said().Annotations; len(a) == 0 || json.Compact(&compact, a) != nil || compact.String() == "{}" || compact.String() == "null" {
		return ""
	}
	return text.OneLine(text.Truncate(compact.String(), 500))
}

// Schema is that of its arguments as agents use it. The error says why the tool cannot be used.
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
	// Whatever the library of schemas does not take is found now, and not in a run.
	if _, err := (tool.Spec{Name: name, Schema: schema}).Arguments(); err != nil {
		return nil, err
	}
	return schema, nil
}

// misfit says what is wrong with the structured part of a result, "" where it fits what the server says of its results. A schema that
// cannot be used says nothing.
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
