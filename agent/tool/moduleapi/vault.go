package moduleapi

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

var resolveSpec = reading("host_vault_resolve", "Gives a module a secret that its manifest binds and its agent is granted; the record never has its value.", tool.Spec{Args: reflect.TypeFor[bindingArgs]()})

// minSecret is the minimum length of a secret in bytes. Shorter secrets cannot be distinguished
// from other text.
const minSecret = 4

type bindingArgs struct {
	Name string `json:"name"`
}

// given is a secret value that the module was given.
type given struct{ name, value string }

// resolve returns the placeholder of a secret, or of the token that the binding refers to. The
// module gets the value only after the placeholder was recorded.
func (h *Host) resolve(s tool.Spec) (tool.Tool, error) {
	s.Access = tool.AccessOf(func(_ context.Context, _ tool.Invocation, a bindingArgs) (tool.Access, error) {
		grant, err := h.binding(a.Name)
		if id, ok := h.boundProvider(a.Name); ok {
			_, grant, err = h.provider(id)
		}
		return tool.Access{AddsTaint: privateUnless(grant.Public)}, err
	})
	return tool.Define(s, func(ctx context.Context, _ tool.Invocation, a bindingArgs) (tool.Envelope, error) {
		if id, ok := h.boundProvider(a.Name); ok {
			p, _, err := h.provider(id)
			if err != nil {
				return tool.Envelope{}, err
			}
			result, err := h.token(ctx, p)
			if err != nil {
				return tool.Envelope{}, signInFailure(err)
			}
			return tool.Success(result), nil
		}
		_, err := h.binding(a.Name)
		return tool.Success(value{tool.Placeholder(a.Name)}), err
	})
}

// binding returns the secret of a binding.
func (h *Host) binding(name string) (tool.SecretGrant, error) {
	s, err := secretOf(h.o.Manifest, h.o.Secrets, name)
	if err != nil {
		return s, tool.Refuse(tool.KindRejected, "%v", err).WithField("name", "a binding of the manifest")
	}
	return s, nil
}

// secretOf returns the secret that an agent is granted for a binding of a manifest.
func secretOf(m *skills.Manifest, secrets []tool.SecretGrant, name string) (tool.SecretGrant, error) {
	refuse := func(format string, args ...any) (tool.SecretGrant, error) {
		return tool.SecretGrant{}, fmt.Errorf(format, args...)
	}
	if !slices.ContainsFunc(m.RequiredBindings, func(b skills.Binding) bool { return b.Name == name }) {
		return refuse("%q is not among the requiredBindings of the skill's manifest", name)
	}

	i := slices.IndexFunc(secrets, func(s tool.SecretGrant) bool { return s.Name == name })
	switch {
	case i < 0:
		return refuse("the secret %s is not granted to this agent; its owner can grant it, under grants: secrets", name)
	case secrets[i].Value == "":
		return refuse("the secret %s is not set any more; its owner sets it with: rouse secrets set %[1]s", name)
	case len(secrets[i].Value) < minSecret:
		return refuse("the secret %s has fewer than %d characters, and could not be told from other text", name, minSecret)
	}
	return secrets[i], nil
}

// undeclaredSecrets returns an error if the arguments contain the placeholder of a secret that the
// manifest does not bind.
func (h *Host) undeclaredSecrets(args json.RawMessage) error {
	for _, name := range tool.Placeholders(string(args)) {
		if !h.binds(name) {
			return &Error{Code: string(tool.KindRejected), Message: fmt.Sprintf("%q is not among the requiredBindings of the skill's manifest", name)}
		}
	}
	return nil
}

// binds reports whether the manifest declares the secret or the provider's token with this name.
func (h *Host) binds(name string) bool {
	if id := providerOf(name); id != "" {
		return h.has("oauth.getToken") && slices.ContainsFunc(h.o.Manifest.OAuth, func(a skills.OAuth) bool { return a.ProviderID == id })
	}
	return slices.ContainsFunc(h.o.Manifest.RequiredBindings, func(b skills.Binding) bool { return b.Name == name })
}

// reveal replaces a placeholder with the value of its secret. The value is concealed from then on.
func (h *Host) reveal(result json.RawMessage) json.RawMessage {
	var placeholder string
	if json.Unmarshal(result, &placeholder) != nil {
		return result
	}
	names := tool.Placeholders(placeholder)
	if len(names) != 1 || placeholder != tool.Placeholder(names[0]) {
		return result
	}

	value := h.valueOf(names[0])
	if value == "" { // revoked since an earlier attempt
		return result
	}
	h.give(given{names[0], value})
	text, err := json.Marshal(value)
	if err != nil {
		return result // strings can always be encoded
	}
	return text
}

// valueOf returns the value of a secret or a token, or "" if the module cannot have it.
func (h *Host) valueOf(name string) string {
	id := providerOf(name)
	if id == "" {
		grant, _ := h.binding(name)
		return grant.Value
	}
	p, _, err := h.provider(id)
	if err != nil {
		return ""
	}
	token, err := h.o.SignIns.Known(p)
	if err != nil || token == "" {
		return ""
	}
	h.o.Learn(token)
	return token
}

// give records a value that the module was given. Longer values come first, because one value may
// be a part of another.
func (h *Host) give(one given) {
	h.given = slices.DeleteFunc(h.given, func(g given) bool { return g == one })
	h.given, h.latest[one.name] = append(h.given, one), one.value
	slices.SortStableFunc(h.given, func(a, b given) int { return len(b.value) - len(a.value) })
}

// conceal replaces the secret values that the module was given with placeholders. It returns an
// error if the arguments contain a secret in another form, because that form could not be redacted.
// The arguments are encoded again, so that JSON escapes cannot hide a secret.
func (h *Host) conceal(args json.RawMessage) (json.RawMessage, error) {
	var v any
	dec := json.NewDecoder(strings.NewReader(string(args)))
	dec.UseNumber()
	if err := dec.Decode(&v); err != nil {
		return nil, argumentError("the arguments are not understood: " + err.Error())
	}

	var pairs, values []string
	for _, g := range h.given {
		pairs, values = append(pairs, g.value, tool.Placeholder(g.name)), append(values, g.value)
	}
	out, err := json.Marshal(mapTexts(v, strings.NewReplacer(pairs...).Replace))
	if err != nil {
		return nil, err
	}

	if len(values) == 0 {
		return out, nil
	}
	if hidden := redact.New(values).JSON(out); !jsonEqual(hidden, out) {
		return nil, &Error{Code: codeDenied, Message: "the call holds a secret in another form than it was given in; pass it on as it is, so that it can be kept out of the record"}
	}
	return out, nil
}

// mapTexts replaces each string of a JSON value, including keys.
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
