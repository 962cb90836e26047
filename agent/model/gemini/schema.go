package gemini

import (
	"encoding/json"
	"strings"

	"rouse/agent/model"
)

// schema is the API's subset of an OpenAPI schema.
type schema struct {
	Type        string             `json:"type"`
	Description string             `json:"description,omitempty"`
	Enum        []string           `json:"enum,omitempty"`
	Items       *schema            `json:"items,omitempty"`
	Properties  map[string]*schema `json:"properties,omitempty"`
	Required    []string           `json:"required,omitempty"`
}

// encodeTool declares a tool. Its schema is in the subset that models are sent, see model.Tool.
func encodeTool(t model.Tool) function {
	f := function{Name: t.Name, Description: t.Description}
	var s schema
	if json.Unmarshal(t.Schema, &s) != nil || len(s.Properties) == 0 {
		return f // the API refuses an object without properties
	}

	if s.translate() {
		f.Parameters = &s
	} else {
		f.JSONSchema = t.Schema
	}
	return f
}

// translate gives a schema the API's names of types. False means that it holds an object of any properties, which only JSON Schema
// can describe.
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
