package tool

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"rouse/internal/domain"
)

// Argument describes an argument of a tool for people.
type Argument struct {
	Name        string   `json:"name"`
	Type        string   `json:"type"` // type in words, for example "text" or "list of texts"
	Required    bool     `json:"required"`
	Values      []string `json:"values,omitempty"` // allowed values; omitted if all values of the type are allowed
	Description string   `json:"description,omitempty"`
}

// ArgumentList returns the arguments of the tool in the order of its argument type.
func (s Spec) ArgumentList() ([]Argument, error) {
	schema, err := s.schema()
	if err != nil {
		return nil, err
	}

	out := []Argument{}
	for _, name := range propertyNames(schema) {
		p := schema.Properties[name]
		a := Argument{Name: name, Type: typeText(p), Required: slices.Contains(schema.Required, name), Description: p.Description}
		for _, v := range p.Enum {
			a.Values = append(a.Values, fmt.Sprint(v))
		}
		out = append(out, a)
	}
	return out, nil
}

// propertyNames returns the property names of an object: first in the order of its type, then the
// others by name.
func propertyNames(s *jsonschema.Schema) []string {
	names := slices.Clone(s.PropertyOrder)
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// typeText returns the type of a schema in words.
func typeText(s *jsonschema.Schema) string {
	kinds := slices.DeleteFunc(append([]string{s.Type}, s.Types...), func(k string) bool { return k == "" || k == "null" })
	if len(kinds) != 1 {
		return "any value"
	}

	switch kinds[0] {
	case "string":
		return "text"
	case "integer":
		return "whole number"
	case "boolean":
		return "true or false"
	case "array":
		if s.Items == nil {
			return "list"
		}
		return "list of " + strings.TrimPrefix(typeText(s.Items), "list of ") + "s"
	}
	return kinds[0]
}

// ExampleArgs returns the arguments of a typical call. If Example is empty, it returns valid values
// for the required arguments.
func (s Spec) ExampleArgs() (json.RawMessage, error) {
	if s.Example != "" {
		return json.RawMessage(s.Example), nil
	}

	schema, err := s.schema()
	if err != nil {
		return nil, err
	}
	return json.Marshal(exampleOf("", schema))
}

// exampleOf returns a value that matches a schema. Objects contain the required properties, and
// lists one item.
func exampleOf(name string, s *jsonschema.Schema) any {
	if len(s.Enum) > 0 {
		return s.Enum[0]
	}

	switch typeText(s) {
	case "text", "any value":
		return cmp.Or(name, "text")
	case "whole number", "number":
		return 1
	case "true or false":
		return true
	case "object":
		out := map[string]any{}
		for _, required := range s.Required {
			if p := s.Properties[required]; p != nil {
				out[required] = exampleOf(required, p)
			}
		}
		return out
	}
	if s.Items == nil {
		return []any{}
	}
	return []any{exampleOf(name, s.Items)}
}

// Callable reports whether rouse call and playbooks can call the tool. They have no model and
// cannot wait for an answer.
func (s Spec) Callable() bool { return s.Listed() && !s.Waits && s.Requires != RequiresModel }

// givenTo describes, for each requirement, the agents that have the tool.
var givenTo = map[Requirement]string{
	RequiresNothing:        "every agent",
	RequiresModel:          "every agent, in runs that a model does",
	RequiresDatabase:       "agents with a database (database.enabled), which is the default",
	RequiresCommands:       "agents with grants.commands, or that name it in tools.allow",
	RequiresRepository:     "agents whose workdir is a git repository, or that name it in tools.allow",
	RequiresNetwork:        "agents with grants.network",
	RequiresSelfScheduling: "agents with self_scheduling.enabled",
	RequiresSkills:         "agents that see skills (skills, skill_access), in runs that a model does",
	RequiresUnlisted:       "agents with many skills, or with tools that their model loads on demand",
	RequiresWorkspaces:     "agents with a skill that keeps workspaces",
	RequiresPhases:         "agents with loop: phased, in runs that a model does",
	RequiresModule:         "modules of skills whose manifest declares it",
	RequiresOffer:          "agents with the skill that offers it",
	RequiresExecutor:       "agents with an executor; nobody can call it",
	RequiresServer:         "agents with the MCP server (mcp), once you have approved its tools",
}

// GivenTo returns a description of the agents that have the tool, before their allow and deny lists
// apply.
func (s Spec) GivenTo() string {
	if s.AliasOf != "" {
		return "agents that name it in tools.allow"
	}
	return givenTo[s.Requires]
}

// Grants returns the configuration keys of the grants that calls of the tool need. Other calls need
// the owner's approval or are refused.
func (s Spec) Grants() []string {
	out := []string{}
	switch s.Requires {
	case RequiresCommands, RequiresRepository:
		return append(out, "grants.commands")
	case RequiresNetwork:
		return append(out, "grants.network")
	case RequiresModule, RequiresExecutor, RequiresPhases:
		return out
	}

	// All tool families use the name path for arguments that name files.
	if schema, err := s.schema(); err == nil && schema.Properties["path"] != nil {
		if s.Effect == domain.EffectWrite {
			return append(out, "grants.write")
		}
		return append(out, "grants.read")
	}
	return out
}
