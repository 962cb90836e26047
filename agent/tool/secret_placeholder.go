package tool

import (
	"regexp"
	"slices"
)

// SecretGrant is a secret that an agent's calls may use by its placeholder (OSL-22). The value replaces
// the placeholder at the last moment, after the call was recorded.
type SecretGrant struct {
	Name   string
	OnlyTo string // the one host that it may be sent to; "" when it is for commands
	Value  string // "" when its owner has removed it since
	// Token marks the token of a sign-in, which is for the hosts that its skill's manifest and its agent's grants name, and not for
	// one. Its value is looked up when it is sent.
	Token  bool
	Public bool // what it opens is not private: a run that uses it does not get that label
}

// placeholder stands for a secret in the arguments of a call. No secret has a name with a colon: those are tokens.
var placeholder = regexp.MustCompile(`__OSL_SECRET\[((?:` + tokenPrefix + `)?[A-Za-z0-9][A-Za-z0-9_.-]*)\]__`)

const tokenPrefix = "oauth:"

// TokenName is the name in placeholders of the token of a provider; "" for a provider whose id no placeholder can hold.
func TokenName(provider string) string {
	name := tokenPrefix + provider
	if !slices.Equal(Placeholders(Placeholder(name)), []string{name}) {
		return ""
	}
	return name
}

// Placeholder is what a call writes for a secret.
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

// FillPlaceholders replaces each placeholder in a text. The values are not searched for placeholders
// again.
func FillPlaceholders(text string, valueOf func(name string) string) string {
	return placeholder.ReplaceAllStringFunc(text, func(m string) string {
		return valueOf(placeholder.FindStringSubmatch(m)[1])
	})
}
