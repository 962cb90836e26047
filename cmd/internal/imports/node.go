package imports

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"

	"rouse/internal/text"
)

// node is a value of a YAML or JSON file. Maps keep the order of their keys.
type node struct {
	line  int    // 0 if unknown
	text  string // value of a scalar
	kind  byte   // s: scalar, n: null, l: list, m: map
	keys  []string
	items []*node // items of a list or values of a map
	used  map[string]bool
}

const (
	// maxNodes is the maximum number of values in a file, counting repetitions by aliases.
	maxNodes = 100_000
	maxDepth = 50
)

var errTooLarge = fmt.Errorf("the file has more than %d values, or lies deeper than %d", maxNodes, maxDepth)

func parseYAML(text string) (out []*node, err error) {
	decoder := yaml.NewDecoder(strings.NewReader(text))
	left := maxNodes
	for {
		var doc yaml.Node
		switch err := decoder.Decode(&doc); {
		case errors.Is(err, io.EOF):
			return out, nil
		case err != nil:
			return nil, err
		}
		if len(doc.Content) == 0 {
			continue
		}
		n, err := fromYAML(doc.Content[0], 0, &left)
		if err != nil {
			return nil, err
		}
		out = append(out, n)
	}
}

func fromYAML(y *yaml.Node, depth int, left *int) (*node, error) {
	if *left--; *left < 0 || depth > maxDepth {
		return nil, errTooLarge
	}
	if y.Kind == yaml.AliasNode {
		return fromYAML(y.Alias, depth+1, left)
	}

	n := &node{line: y.Line, text: y.Value, kind: 's', used: map[string]bool{}}
	switch {
	case y.Kind == yaml.ScalarNode && y.Tag == "!!null":
		n.kind = 'n'
	case y.Kind == yaml.SequenceNode:
		n.kind = 'l'
		for _, item := range y.Content {
			one, err := fromYAML(item, depth+1, left)
			if err != nil {
				return nil, err
			}
			n.items = append(n.items, one)
		}
	case y.Kind == yaml.MappingNode:
		n.kind = 'm'
		for i := 0; i+1 < len(y.Content); i += 2 {
			value, err := fromYAML(y.Content[i+1], depth+1, left)
			if err != nil {
				return nil, err
			}
			key := y.Content[i]
			if key.Value != "<<" || value.kind != 'm' {
				n.put(key.Value, value)
				continue
			}
			for k, name := range value.keys { // keys of the map itself take precedence
				if !slices.Contains(n.keys, name) {
					n.put(name, value.items[k])
				}
			}
		}
	}
	return n, nil
}

func (n *node) put(key string, value *node) {
	if i := slices.Index(n.keys, key); i >= 0 {
		n.items[i] = value
		return
	}
	n.keys, n.items = append(n.keys, key), append(n.items, value)
}

// parseJSON parses a single JSON value.
func parseJSON(text string) (*node, error) {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	left := maxNodes
	n, err := fromJSON(d, text, 0, &left)
	if err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("something follows the end of the JSON value")
	}
	return n, nil
}

func fromJSON(d *json.Decoder, text string, depth int, left *int) (*node, error) {
	if *left--; *left < 0 || depth > maxDepth {
		return nil, errTooLarge
	}
	token, err := d.Token()
	if err != nil {
		return nil, err
	}

	n := &node{line: 1 + strings.Count(text[:min(int(d.InputOffset()), len(text))], "\n"), kind: 's', used: map[string]bool{}}
	switch v := token.(type) {
	case nil:
		n.kind = 'n'
	case string:
		n.text = v
	case bool:
		n.text = strconv.FormatBool(v)
	case json.Number:
		n.text = v.String()
	case json.Delim:
		n.kind = 'l'
		if v == '{' {
			n.kind = 'm'
		}
		for d.More() {
			key := ""
			if v == '{' {
				name, err := d.Token()
				if err != nil {
					return nil, err
				}
				key = fmt.Sprint(name)
			}
			item, err := fromJSON(d, text, depth+1, left)
			if err != nil {
				return nil, err
			}
			if v == '{' {
				n.put(key, item)
			} else {
				n.items = append(n.items, item)
			}
		}
		_, err = d.Token()
	}
	return n, err
}

// fold normalizes a key: retryPolicy and retry_policy are equal.
func fold(key string) string { return strings.ToLower(strings.ReplaceAll(key, "_", "")) }

// get returns the value of the first key that exists, and marks it as used. It returns nil if there
// is no such key or the value is null.
func (n *node) get(keys ...string) *node {
	if n == nil || n.kind != 'm' {
		return nil
	}
	for _, key := range keys {
		for i, k := range n.keys {
			if fold(k) == fold(key) && n.items[i].kind != 'n' {
				n.used[k] = true
				return n.items[i]
			}
		}
	}
	return nil
}

// str returns the text of a scalar, or "" for other kinds.
func (n *node) str() string {
	if n == nil || n.kind != 's' {
		return ""
	}
	return n.text
}

// is reports whether the value is true.
func (n *node) is() bool { return n.str() == "true" }

// list returns the items of a list. Any other value becomes a list of one item.
func (n *node) list() []*node {
	switch {
	case n == nil:
		return nil
	case n.kind == 'l':
		return n.items
	}
	return []*node{n}
}

// rest returns the unused keys with their values, one line each.
func (n *node) rest() (out []string) {
	if n == nil || n.kind != 'm' {
		return nil
	}
	for i, k := range n.keys {
		if !n.used[k] && n.items[i].kind != 'n' {
			out = append(out, k+": "+n.items[i].short())
		}
	}
	return out
}

// short formats a value on one line.
func (n *node) short() string {
	var parts []string
	switch n.kind {
	case 'l':
		for _, item := range n.items {
			parts = append(parts, item.short())
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case 'm':
		for i, k := range n.keys {
			parts = append(parts, k+": "+n.items[i].short())
		}
		return "{" + strings.Join(parts, ", ") + "}"
	case 'n':
		return "null"
	}
	return n.text
}

var (
	// reference matches text that the configuration would expand as a variable.
	reference = regexp.MustCompile(`\$\{[^}]*\}`)
	// plainWord matches a word that YAML reads as a string in any context.
	plainWord = regexp.MustCompile(`^[A-Za-z/][A-Za-z0-9/_.-]*[A-Za-z0-9]$`)
	notText   = regexp.MustCompile(`(?i)^(true|false|yes|no|on|off|null|nan|inf)$`)
)

// quote formats a text as YAML, for values that are not templates. Go's escapes are valid in YAML
// and keep control characters away from terminals.
func quote(s string) string {
	s = reference.ReplaceAllString(s, "$$$0")
	if plainWord.MatchString(s) && !notText.MatchString(s) {
		return s
	}
	return strconv.Quote(strings.ToValidUTF8(s, "\ufffd"))
}

// literal escapes a text so that a template prints it unchanged and does not read it as an
// expression.
func literal(s string) string {
	s = strings.ReplaceAll(s, "{{", `{{ "{{" }}`)
	if strings.HasPrefix(s, "= ") {
		return `{{ "=" }}` + s[1:]
	}
	return s
}

func quoteList(words []string) string {
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = quote(w)
	}
	return "[" + strings.Join(out, ", ") + "]"
}

func value(v any) string {
	switch v := v.(type) {
	case raw:
		return string(v)
	case bool, int:
		return fmt.Sprint(v)
	case []string:
		return quoteList(v)
	default:
		return quote(fmt.Sprint(v))
	}
}

// block formats a multi-line text as a YAML block after "key: ". If YAML cannot represent it as a
// block, block returns a quoted string.
func block(s, indent string) string {
	s = reference.ReplaceAllString(s, "$$$0")
	lines := strings.Split(s, "\n")
	shows := func(r rune) bool { return unicode.IsPrint(r) || r == '\n' }
	plain := len(lines) > 1 && strings.TrimSpace(lines[0]) != "" && lines[0][0] != ' ' && lines[len(lines)-1] != "" &&
		utf8.ValidString(s) && strings.IndexFunc(s, func(r rune) bool { return !shows(r) }) < 0
	if !plain {
		return quote(strings.ReplaceAll(s, "$${", "${")) // quote escapes references itself
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

// comment writes lines as YAML comments. Control characters are made visible.
func comment(b *strings.Builder, indent string, lines ...string) {
	for _, one := range lines {
		for line := range strings.SplitSeq(text.Visible(one), "\n") {
			b.WriteString(strings.TrimRight(indent+"# "+line, " ") + "\n")
		}
	}
}
