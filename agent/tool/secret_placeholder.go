package tool

import (
	"regexp"
	"slices"
)

// SecretGrant is a secret that an agent's calls may use by its placeholder (OSL-22). The value
// replaces the placeholder after the call was recorded.
type SecretGrant struct {
	Name   string
	OnlyTo string // the one host that it may be sent to; "" when it is for commands
	Value  string // "" when its owner has removed it since
	// Token marks the token of a sign-in, which may be sent to several hosts: those that the manifest
	// of its skill and the grants of its agent name. Its value is looked up when it is sent.
	Token  bool
	Public bool // what it opens is not private: a run that uses it does not get that label
}

// placeholder stands for a secret in the arguments of a call. No secret has a name with a colon: those are tokens.
var placeholder = regexp.MustCompile(`__OSL_SECRET\[((?:` + tokenPrefix + `)?[A-Za-z0-9][A-Za-z0-9_.-]*)\]__`)

const tokenPrefix = "oauth:"

// TokenName returns the placeholder name of a provider's token; "" if no placeholder can hold its
// id.
func TokenName(provider string) string {
	name := tokenPrefix + provider
	if !slices.Equal(Placeholders(Placeholder(name)), []string{name}) {
		return ""
	}
	return name
}

func Placeholder(name string) string { return "__OSL_SECRET[" + name + "]__" }

// Placeholders lists the names of the secrets that a text asks for, each once.
func Placeholders(text string) []string {
	var names []string
	for _, m := range placeholder.FindAllStringSubmatch(text, -1) {
		if !slices.Contains(names, m[1]) {
			names = append(names, m[1])
		}
	}
	return names
}

// FillPlaceholders replaces each placeholder in a text. Values are not searched for placeholders.
func FillPlaceholders(text string, valueOf func(name string) string) string {
	return placeholder.ReplaceAllStringFunc(text, func(m string) string {
		return valueOf(placeholder.FindStringSubmatch(m)[1])
	})
}
