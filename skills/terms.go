package skills

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
)

// Term is a property or request of a program that its owner reviews before installation. Text
// contains words of the program's author.
type Term struct {
	What string `json:"what"` // kind of term, like "network"
	Text string `json:"text"`
}

// Terms returns all properties and requests of a program, in a fixed order. They are shown on
// installation and used to compare two versions.
func (m *Manifest) Terms() []Term {
	if m == nil {
		return nil
	}
	var out []Term
	add := func(what, format string, args ...any) { out = append(out, Term{what, fmt.Sprintf(format, args...)}) }

	add("version", "%s by %s", m.Version, m.Author)
	add("mode", "%s", m.ExecutionMode)
	add("platforms", "%s", cmp.Or(words(m.SupportedPlatforms), "all"))
	add("bridge", "%s", bridgeMeans[m.BridgeRequirement])
	if len(m.CompatibilityRequirements) > 0 {
		add("needs", "%s", strings.Join(m.CompatibilityRequirements, ", "))
	}
	m.runTerms(add)

	for _, p := range m.Permissions {
		add("permission", "%s (%s): %s%s", p.Kind, p.Scope, p.Description, inBrackets(p.BrowserPermissions))
	}
	for _, r := range m.Sandbox.NetworkRules {
		add("network", "%s %s: %s", strings.Join(r.Methods, ", "), r.URLPattern, r.Description)
	}
	for _, u := range m.LLMUsage {
		add("asks a model", "%s (%s%s): %s", u.PurposeID, u.Kind, tokens(u.EstimatedTokenBudget), u.Description)
	}
	for _, b := range m.RequiredBindings {
		add("secret", "%s, %s (%s): %s", b.Name, b.need(), b.Scope, b.Description)
	}
	for _, a := range m.OAuth {
		add("signs in", "to %s %s, with tokens of %s%s", a.DisplayName, a.where(), a.TokenURL, inBrackets(a.Scopes))
	}
	for _, s := range m.RequiredMCPServers {
		add("mcp server", "%s: %s", s.Name, s.Description)
	}
	for _, t := range m.RequiredMCPTools {
		add("mcp tool", "%s/%s: %s", t.ServerName, t.ToolName, t.Description)
	}
	for _, w := range m.WASM {
		add("wasm", "%s, %s%s, %d MiB, %s", w.ModuleID, w.from(), inBrackets(w.Exports), w.MemoryLimitMB, w.audited())
	}
	for _, t := range m.Tools {
		add("tool", "%s: %s", t.Name, t.Description)
	}

	add("bounds", "%d ms, %d MiB, %s%s", m.Sandbox.MaxExecutionMS, m.Sandbox.MaxMemoryMB, m.Sandbox.Isolation, inBrackets(m.Sandbox.AllowedGlobals))
	return out
}

var bridgeMeans = map[Bridge]string{
	BridgeNever:    "never",
	BridgeOptional: "optional: it can run programs of this machine",
	BridgeRequired: "required: it runs programs of this machine",
}

// runTerms adds terms about runs: user input, workspaces and duration.
func (m *Manifest) runTerms(add func(what, format string, args ...any)) {
	if m.WorkspaceSupport != SupportNone {
		add("workspace", "%s", m.WorkspaceSupport)
	}
	if m.LongRunningSupport != SupportNone {
		add("long runs", "%s", m.LongRunningSupport)
	}
	if m.UserInputSupport {
		add("asks people", "yes")
	}

	c := m.AgenticConfig
	if c == nil || !c.Enabled {
		return
	}
	if c.SupportsBackgroundExecution {
		add("in the background", "yes")
	}
	most := maxSteps
	if c.MaxStepsPerRun != nil {
		most = *c.MaxStepsPerRun
	}
	add("steps", "%d at most", most)
}

// where returns the place where the owner signs in, for a message.
func (a OAuth) where() string {
	if a.GrantType == GrantClientCredentials {
		return "by itself"
	}
	return "at " + a.AuthorizationURL
}

func (b Binding) need() string {
	need := "optional"
	if b.Required {
		need = "required"
	}
	if b.OAuthProviderID != "" {
		need += ", of the sign-in " + b.OAuthProviderID
	}
	return need
}

// from describes the source of a WebAssembly module.
func (w WASM) from() string {
	if w.SourceKind == wasmInline { // the source may be very long
		return fmt.Sprintf("in the manifest (%d characters, sha256:%.12x)", len(w.SourceURL), sha256.Sum256([]byte(w.SourceURL)))
	}
	return strings.TrimSpace(w.SourceKind + " " + w.SourceURL)
}

func (w WASM) audited() string {
	if w.AuditHash == nil {
		return "not audited"
	}
	return "audited as " + *w.AuditHash
}

func tokens(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(", some %d tokens", n)
}

func inBrackets(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return " [" + strings.Join(list, ", ") + "]"
}

// Change is a difference between the terms of two versions of a skill.
type Change struct {
	Term
	Added bool `json:"added"` // true if the term is new, false if it was removed
}

// Compare returns the differences between two versions of a program, removed terms first, in the
// order of Terms. Either manifest may be nil, which has no terms.
func Compare(old, now *Manifest) (out []Change) {
	was, is := old.Terms(), now.Terms()
	for _, t := range was {
		if !slices.Contains(is, t) {
			out = append(out, Change{Term: t})
		}
	}
	for _, t := range is {
		if !slices.Contains(was, t) {
			out = append(out, Change{Term: t, Added: true})
		}
	}

	return out
}
