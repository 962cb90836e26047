package notify

import (
	"regexp"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/net/idna"
	"golang.org/x/net/publicsuffix"
)

// Patterns that a chat program interprets as more than text.
var (
	linkScheme = regexp.MustCompile(`(?i)\b([a-z][a-z0-9+.-]*):(//|\\\\)`)
	// dotted matches dotted names with the characters that can turn them into an address. It
	// includes the Unicode dots that browsers treat as a dot.
	dotted = regexp.MustCompile(`(?:[\p{L}\p{N}._%+-]+@)?[\p{L}\p{N}\p{M}_-]+(?:[.。．｡][\p{L}\p{N}\p{M}_-]+)+(?:(?::\p{N}+)?[/?#\\])?`)
	dot    = regexp.MustCompile(`[.。．｡]`)
	// calling matches mentions of people, roles and channels: @name, <@&5>, <!here>, <#C5>,
	// @**all**.
	calling = regexp.MustCompile(`(^|[^\p{L}\p{N}.!#$%&'*+/=?^_{|}~-])@|<[@!#]|<users/`)
)

// extensions lists common file extensions that are also top-level domains.
var extensions = []string{"cc", "in", "la", "md", "mk", "ml", "mm", "mov", "pl", "pm", "ps", "py", "rs", "sh", "so", "st", "tf", "zip"}

// defuse changes a text so that chat programs do not open its links or mention people. Agents and
// strangers write these texts. A server that previews a link reveals to the link's author any data
// the link contains.
func defuse(s string) string {
	s = linkScheme.ReplaceAllString(s, "$1[:]$2")
	s = dotted.ReplaceAllStringFunc(s, defuseName)
	return calling.ReplaceAllStringFunc(s, func(found string) string {
		if strings.HasPrefix(found, "<") {
			return "<\u200b" + found[1:]
		}
		return found + "\u200b"
	})
}

// defuseName breaks a dotted name at its last dot if a chat would turn the name into a link.
func defuseName(found string) string {
	name, rest := found, ""
	if end := strings.IndexAny(found, `:/?#\`); end >= 0 {
		name, rest = found[:end], found[end:]
	}
	at := strings.IndexByte(name, '@') + 1
	if at > 0 && rest == "" {
		return found // a mail address, which chats do not open
	}
	dots := dot.FindAllStringIndex(name, -1)
	if last := dots[len(dots)-1]; isAddress(dot.ReplaceAllString(name[at:], "."), rest != "") {
		return name[:last[0]] + "[.]" + name[last[1]:] + rest
	}
	return found
}

// isAddress reports whether a chat may treat a name as a host name. Without a path, the name needs
// a public suffix. File names such as backup.sh do not count: leaking a secret in a two-label name
// requires registering that domain.
func isAddress(name string, path bool) bool {
	labels := strings.Split(name, ".")
	ending := labels[len(labels)-1]
	if !strings.ContainsFunc(ending, unicode.IsLetter) {
		return len(labels) == 4 && !strings.ContainsFunc(name, unicode.IsLetter) // an IP address, or a number
	}
	if path {
		return true
	}
	if len(labels) == 2 && slices.Contains(extensions, strings.ToLower(ending)) {
		return false
	}
	ascii, err := idna.ToASCII(strings.ToLower("x." + ending))
	if err != nil {
		return true
	}
	_, known := publicsuffix.PublicSuffix(ascii)
	return known
}
