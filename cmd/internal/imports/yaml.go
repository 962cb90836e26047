package imports

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"rouse/internal/text"
)

var (
	// What the configuration would take for a variable, and what templates would take for an action.
	reference = regexp.MustCompile(`\$\{[^}]*\}`)
	// A word that YAML takes for a text and nothing else, whatever stands around it in a list.
	plainWord = regexp.MustCompile(`^[A-Za-z/][A-Za-z0-9/_.-]*[A-Za-z0-9]$`)
	notText   = regexp.MustCompile(`(?i)^(true|false|yes|no|on|off|null|nan|inf)$`)
)

// quote writes a text as YAML has it, for values that are no templates. What does not show as itself is escaped, so that it does
// nothing to a terminal.
func quote(s string) string {
	s = reference.ReplaceAllString(s, "$$$0")
	if plainWord.MatchString(s) && !notText.MatchString(s) {
		return s
	}

	var b strings.Builder
	b.WriteByte('"')
	for i, r := range s {
		_, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && size == 1: // readers refuse what is not UTF-8; this is for what came otherwise
			b.WriteRune(utf8.RuneError)
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case unicode.IsPrint(r):
			b.WriteRune(r)
		case r < 0x100:
			fmt.Fprintf(&b, `\x%02x`, r)
		case r < 0x10000:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			fmt.Fprintf(&b, `\U%08x`, r)
		}
	}

	b.WriteByte('"')
	return b.String()
}

// literal is a text that a template prints as it is, and that is no expression.
func literal(s string) string {
	s = strings.ReplaceAll(s, "{{", `{{ "{{" }}`)
	if strings.HasPrefix(s, "= ") {
		return `{{ "=" }}` + s[1:]
	}
	return s
}

// quoteList writes a list in a line.
func quoteList(words []string) string {
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = quote(w)
	}
	return "[" + strings.Join(out, ", ") + "]"
}

// value writes the value of a key.
func value(v any) string {
	switch v := v.(type) {
	case raw:
		return string(v)
	case bool:
		return strconv.FormatBool(v)
	case int:
		return strconv.Itoa(v)
	case []string:
		return quoteList(v)
	default:
		return quote(fmt.Sprint(v))
	}
}

// block writes a text of several lines as it reads, where YAML can, after "key: ".
func block(s, indent string) string {
	s = reference.ReplaceAllString(s, "$$$0")
	lines := strings.Split(s, "\n")
	shows := func(r rune) bool { return unicode.IsPrint(r) || r == '\n' }
	plain := len(lines) > 1 && strings.TrimSpace(lines[0]) != "" && lines[0][0] != ' ' && lines[len(lines)-1] != "" &&
		utf8.ValidString(s) && strings.IndexFunc(s, func(r rune) bool { return !shows(r) }) < 0
	if !plain {
		return quote(strings.ReplaceAll(s, "$${", "${")) // quote escapes it itself
	}

	var b strings.Builder
	b.WriteString("|-")
	for _, line := range lines {
		b.WriteByte('\n')
		if line != "" {
			b.WriteString(indent + line)
		}
	}
	return b.String()
}

// comment writes lines as comments, whatever is in them.
func comment(b *strings.Builder, indent string, lines ...string) {
	for _, one := range lines {
		for line := range strings.SplitSeq(text.Visible(one), "\n") {
			b.WriteString(strings.TrimRight(indent+"# "+line, " ") + "\n")
		}
	}
}
