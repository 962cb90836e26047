package host

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"rouse/agent/redact"
	"rouse/agent/tool"
	"rouse/skills"
)

var resolveSpec = reading("host_vault_resolve", "Gives a module a secret that its manifest binds and its agent is granted; the record never has its value.", reflect.TypeFor[bindingArgs]())

// minSecret is the length of a secret that can be told from other text, in bytes.
const minSecret = 4

type bindingArgs struct {
	Name string `json:"name"`
}

// resolve gives the name of a secret. Its value is put in for the module alone, after the answer was recorded.
func (h *Host) resolve() (tool.Tool, error) {
	s := resolveSpec
	s.Needs = tool.Needs(func(_ context.Context, _ tool.Invocation, a bindingArgs) (tool.Need, error) {
		grant, refused := h.binding(a.Name)
		if refused != nil {
			return tool.Need{Refused: refused}, nil
		}
		if grant.Public {
			return tool.Need{}, nil
		}
		return tool.Need{AddsTaint: tool.Private}, nil
	})
	return tool.Define(s, func(_ context.Context, _ tool.Invocation, a bindingArgs) (tool.Envelope, error) {
		if _, refused := h.binding(a.Name); refused != nil {
			return *refused, nil
		}
		return tool.Success(value{tool.Placeholder(a.Name)}), nil
	})
}

// binding is the secret of a binding, or why the module cannot have it.
func (h *Host) binding(name string) (tool.SecretGrant, *tool.Envelope) {
	refuse := func(format string, args ...any) (tool.SecretGrant, *tool.Envelope) {
		e := tool.Failure(tool.KindRejected, format, args...).WithField("name", "a binding of the manifest")
		return tool.SecretGrant{}, &e
	}
	if !h.binds(name) {
		return refuse("%q is not among the requiredBindings of the skill's manifest", name)
	}

	i := slices.IndexFunc(h.o.Secrets, func(s tool.SecretGrant) bool { return s.Name == name })
	switch {
	case i < 0:
		return refuse("the secret %s is not granted to this agent; its owner can grant it, under grants: secrets", name)
	case h.o.Secrets[i].Value == "":
		return refuse("the secret %s is not set any more; its owner sets it with: rouse secrets set %[1]s", name)
	case len(h.o.Secrets[i].Value) < minSecret:
		return refuse("the secret %s has fewer than %d characters, and could not be told from other text", name, minSecret)
	}
	return h.o.Secrets[i], nil
}

// undeclaredSecrets refuses arguments with the placeholder of a secret that the manifest does not bind: its agent may be granted
// others.
func (h *Host) undeclaredSecrets(args json.RawMessage) error {
	for _, name := range tool.Placeholders(string(args)) {
		if !h.binds(name) {
			return &Error{Code: string(tool.KindRejected), Message: fmt.Sprintf("%q is not among the requiredBindings of the skill's manifest", name)}
		}
	}
	return nil
}

func (h *Host) binds(name string) bool {
	return slices.ContainsFunc(h.o.Manifest.RequiredBindings, func(b skills.Binding) bool { return b.Name == name })
}

// reveal is what a module gets where a result has the placeholder of its binding: the value, which is known from then on.
func (h *Host) reveal(result json.RawMessage) json.RawMessage {
	var placeholder string
	if json.Unmarshal(result, &placeholder) != nil {
		return result
	}
	names := tool.Placeholders(placeholder)
	if len(names) != 1 || placeholder != tool.Placeholder(names[0]) {
		return result
	}

	grant, refused := h.binding(names[0])
	if refused != nil { // it was taken away since an earlier attempt had it
		return result
	}
	h.given[grant.Name] = grant.Value
	text, err := json.Marshal(grant.Value)
	if err != nil {
		return result // a text can always be written
	}
	return text
}

// conceal puts placeholders in the place of the secrets that the module was given. It refuses arguments that hold one in
// another form, which nobody could keep out of the record and for its one host.
//
// The arguments are written again in any case, so that no escape of JSON hides a text from who looks for it.
func (h *Host) conceal(args json.RawMessage) (json.RawMessage, error) {
	var v any
	dec := json.NewDecoder(strings.NewReader(string(args)))
	dec.UseNumber()
	if err := dec.Decode(&v); err != nil {
		return nil, argumentError("the arguments are not understood: " + err.Error())
	}

	var pairs []string
	for _, name := range h.byLength() {
		pairs = append(pairs, h.given[name], tool.Placeholder(name))
	}
	out, err := json.Marshal(mapTexts(v, strings.NewReplacer(pairs...).Replace))
	if err != nil {
		return nil, err
	}

	if len(h.given) == 0 {
		return out, nil
	}
	if hidden := redact.Named(h.given).JSON(out); !jsonEqual(hidden, out) {
		return nil, &Error{Code: codeDenied, Message: "the call holds a secret in another form than it was given in; pass it on as it is, so that it can be kept out of the record"}
	}
	return out, nil
}

// byLength are the names of the secrets that the module was given, the longest value first: one may be a part of another.
func (h *Host) byLength() []string {
	var names []string
	for name := range h.given {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		if n := len(h.given[b]) - len(h.given[a]); n != 0 {
			return n
		}
		return strings.Compare(a, b)
	})
	return names
}

// mapTexts is a JSON value with each of its texts, and of its keys, replaced.
func mapTexts(v any, replace func(string) string) any {
	switch v := v.(type) {
	case string:
		return replace(v)
	case []any:
		for i := range v {
			v[i] = mapTexts(v[i], replace)
		}
	case map[string]any:
		out := make(map[string]any, len(v))
		for key, item := range v {
			out[replace(key)] = mapTexts(item, replace)
		}
		return out
	}
	return v
}
