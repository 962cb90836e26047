package notify

import (
	"regexp"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/net/idna"
	"golang.org/x/net/publicsuffix"
)

// Words that a chat takes for more than text.
var (
	linkScheme = regexp.MustCompile(`(?i)\b([a-z][a-z0-9+.-]*):(//|\\\\)`)
	// dotted matches names with dots, with the other dots that browsers read as one, and what makes an address of them.
	dotted = regexp.MustCompile(`(?:[\p{L}\p{N}._%+-]+@)?[\p{L}\p{N}\p{M}_-]+(?:[.。．｡][\p{L}\p{N}\p{M}_-]+)+(?:(?::\p{N}+)?[/?#\\])?`)
	dot    = regexp.MustCompile(`[.。．｡]`)
	// calling matches how chats call people, roles and channels: @name, <@&5>, <!here>, <#C5>, @**all**.
	calling = regexp.MustCompile(`(^|[^\p{L}\p{N}.!#$%&'*+/=?^_{|}~-])@|<[@!#]|<users/`)
)

// extensions are the endings of common files that are also those of domains.
var extensions = []string{"cc", "in", "la", "md", "mk", "ml", "mm", "mov", "pl", "pm", "ps", "py", "rs", "sh", "so", "st", "tf", "zip"}

// defuse keeps chats from opening links in texts of agents and strangers, and from calling people: a server that looks up a
// link tells who wrote it whatever they put there.
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

// defuseName breaks a name with dots at its last dot if a chat would make a link of it.
func defuseName(found string) string {
	name, rest := found, ""
	if end := strings.IndexAny(found, `:/?#\`); end >= 0 {
		name, rest = found[:end], found[end:]
	}
	at := strings.IndexByte(name, '@') + 1
	if at > 0 && rest == "" {
		return found // a mail address, which nobody opens
	}
	dots := dot.FindAllStringIndex(name, -1)
	if last := dots[len(dots)-1]; isAddress(dot.ReplaceAllString(name[at:], "."), rest != "") {
		return name[:last[0]] + "[.]" + name[last[1]:] + rest
	}
	return found
}

// isAddress reports whether a chat may take a name for that of a server. Without a path behind it that takes an ending that
// domains have. The name of a file, such as backup.sh, is none: to put a secret into a name of two parts, somebody would
// have to register that very domain.
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
