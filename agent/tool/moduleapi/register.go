package moduleapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"rouse/agent/tool"
	"rouse/agent/tool/moduleapi/store"
	"rouse/skills"
)

var registerSpec = changing("host_tools_register", "Registers a tool of the module for its agent.", tool.Spec{})

type registerArgs struct {
	Name          string         `json:"name"`
	Description   string         `json:"description"`
	InputSchema   map[string]any `json:"inputSchema,omitempty" jsonschema:"JSON Schema of the arguments, an object; anything when absent"`
	HandlerExport string         `json:"handlerExport" jsonschema:"the export of module.ts that answers"`
}

// register stores a tool of the module for later runs of its agent, until the version of the skill
// changes. The rules for tools of a manifest apply, because a model sees the tool.
func (h *Host) register(ctx context.Context, in tool.Invocation, a registerArgs) (tool.Envelope, error) {
	o, err := h.newTool(a)
	if err != nil {
		return tool.Envelope{}, err
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
	return tool.Success(map[string]string{"name": o.Name}), nil // full name, as agents call it
}

func (h *Host) checkTool(a registerArgs) error {
	_, err := h.newTool(a)
	return err
}

// newTool checks a tool that a module registers. Its name must not be declared in the manifest, and
// the module must export its handler.
func (h *Host) newTool(a registerArgs) (Offer, error) {
	refuse := func(field, expected, format string, args ...any) (Offer, error) {
		return Offer{}, tool.Refuse(tool.KindInvalidArgs, format, args...).WithField(field, expected)
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

// declares reports whether a manifest declares a tool with this name.
func declares(m *skills.Manifest, name string) bool {
	return name == executeExport || slices.ContainsFunc(m.Tools, func(t skills.ToolDeclaration) bool { return t.Name == name })
}

// Registered returns the tools that the module of this skill version has registered for an agent,
// sorted by name. path is the agent's storage of the skill.
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

		// Checked again, because the rules or the manifest may have changed since the registration.
		o, err := newOffer(s.Name, one.Name, was.Description, was.Input, was.Export)
		if err == nil && !declares(s.Manifest, one.Name) {
			out = append(out, o)
		}
	}
	return out, nil
}
