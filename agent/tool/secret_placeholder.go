package tool

import (
	"regexp"
	"slices"
)

// SecretGrant is a secret that an agent's calls may use by its placeholder. The value replaces the
// placeholder after the call has been recorded.
type SecretGrant struct {
	Name   string
	OnlyTo string // only host that may receive the secret; "" for a secret of commands
	Value  string // "" if the owner has removed the secret
	// Token marks the token of a sign-in. It may be sent to the hosts named by both the skill's
	// manifest and the agent's grants. Its value is looked up when it is sent.
	Token  bool
	Public bool // the data behind the secret is not private and does not add the label Private
}

// placeholder matches the placeholder of a secret or token in the arguments of a call. Only names
// of tokens contain a colon.
var placeholder = regexp.MustCompile(`__OSL_SECRET\[((?:` + tokenPrefix + `)?[A-Za-z0-9][A-Za-z0-9_.-]*)\]__`)

const tokenPrefix = "oauth:"

// TokenName returns the placeholder name of a provider's token, or "" if the provider's id is not
// valid in a placeholder.
func TokenName(provider string) string {
	name := tokenPrefix + provider
	if !slices.Equal(Placeholders(Placeholder(name)), []string{name}) {
		return ""
	}
	return name
}

func Placeholder(name string) string { return "__OSL_SECRET[" + name + "]__" }

// Placeholders returns the names of the secrets with placeholders in a text, without duplicates.
func Placeholders(text string) []string {
	var names []string
	for _, m := range placeholder.FindAllStringSubmatch(text, -1) {
		if !slices.Contains(names, m[1]) {
			names = append(names, m[1])
		}
	}
	return names
}

// FillPlaceholders replaces each placeholder in a text with its value. It does not replace
// placeholders within values.
func FillPlaceholders(text string, valueOf func(name string) string) string {
	return placeholder.ReplaceAllStringFunc(text, func(m string) string {
		return valueOf(placeholder.FindStringSubmatch(m)[1])
	})
}
