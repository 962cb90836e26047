package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"rouse/agent/tool"
	"rouse/agent/tool/host/store"
	"rouse/internal/domain"
	"rouse/skills"
)

var registerSpec = changing("host_tools_register", "Registers a tool of the module for its agent.", domain.EffectDatabase, reflect.TypeFor[registerArgs]())

type registerArgs struct {
	Name          string         `json:"name"`
	Description   string         `json:"description"`
	InputSchema   map[string]any `json:"inputSchema,omitempty" jsonschema:"JSON Schema of the arguments, an object; anything when absent"`
	HandlerExport string         `json:"handlerExport" jsonschema:"the export of module.ts that answers"`
}

type registered struct {
	Name string `json:"name"` // as agents call it
}

// register keeps a tool of the module for the later runs of its agent, until the version of the skill changes. It is told to a
// model, so that it is held to what a manifest is held to, and has the labels of the storage in which it lies.
func (h *Host) register() (tool.Tool, error) {
	s := registerSpec
	s.Needs = tool.RefusingFirst(func(a registerArgs) *tool.Envelope { _, refused := h.newTool(a); return refused }, h.writesStorage)
	return tool.Define(s, func(ctx context.Context, in tool.Invocation, a registerArgs) (tool.Envelope, error) {
		o, refused := h.newTool(a)
		if refused != nil {
			return *refused, nil
		}
		raw, err := json.Marshal(o)
		if err != nil {
			return tool.Envelope{}, err
		}

		err = h.storage.SetTool(ctx, store.Call{Run: in.Run, Key: in.Key}, h.o.Manifest.Version, store.Tool{Name: a.Name, Offer: raw})
		switch {
		case errors.Is(err, store.ErrTools):
			return tool.Failure(tool.KindRejected, "%v", err), nil
		case err != nil:
			return stored(nil, err)
		}
		return tool.Success(registered{o.Name}), nil
	})
}

// newTool checks a tool that a module registers: it takes the place of none of its manifest, and can be answered.
func (h *Host) newTool(a registerArgs) (Offer, *tool.Envelope) {
	refuse := func(field, expected, format string, args ...any) (Offer, *tool.Envelope) {
		e := tool.Failure(tool.KindInvalidArgs, format, args...).WithField(field, expected)
		return Offer{}, &e
	}

	var schema json.RawMessage
	if a.InputSchema != nil {
		var err error
		if schema, err = json.Marshal(a.InputSchema); err != nil {
			return refuse("inputSchema", "a JSON Schema", "the schema cannot be written as JSON: %v", err)
		}
	}
	o, err := newOffer(h.o.Skill, a.Name, a.Description, schema, a.HandlerExport)
	switch {
	case err != nil:
		return refuse("", "", "%v", err)
	case declares(h.o.Manifest, a.Name):
		return refuse("name", "another name", "the skill has a tool of the name %s already", o.Name)
	case !slices.Contains(h.o.Exports, a.HandlerExport):
		return refuse("handlerExport", "one of "+strings.Join(h.o.Exports, ", "), "the module exports no %q", a.HandlerExport)
	}
	return o, nil
}

// declares says whether a manifest has a tool of a name.
func declares(m *skills.Manifest, name string) bool {
	return name == executeExport || slices.ContainsFunc(m.Tools, func(t skills.ToolDeclaration) bool { return t.Name == name })
}

// Registered are the tools that the module of a skill has registered for the agent whose storage of the skill is the file at path,
// sorted by name: those of this version of the skill.
func Registered(ctx context.Context, path string, s *skills.Skill) (out []Offer, err error) {
	if path == "" {
		return nil, nil
	}
	from := store.New(path, "")
	defer func() { err = errors.Join(err, from.Close()) }()
	kept, err := from.Tools(ctx, s.Manifest.Version)
	if err != nil {
		return nil, err
	}

	for _, one := range kept {
		var was Offer
		if err := json.Unmarshal(one.Offer, &was); err != nil {
			return nil, fmt.Errorf("the registered tool %s is damaged: %w", one.Name, err)
		}

		// Held to the rules of today, and to the manifest, which may have changed without its version.
		o, err := newOffer(s.Name, one.Name, was.Description, was.Input, was.Export)
		if err == nil && !declares(s.Manifest, one.Name) {
			out = append(out, o)
		}
	}
	return out, nil
}
