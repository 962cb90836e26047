package yaml

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"rouse/cmd/internal/config"
)

// cutComment matches a comment that is probably part of a text, because real comments usually have
// a space after the #.
var cutComment = regexp.MustCompile(`^#[^\s#!-]`)

// texts lists the keys with texts, addresses or code, which can contain a #.
var texts = strings.Fields("prompt instructions soul title body reason url http that sql if argv command")

// isText reports whether a value can contain a #: a text, a secret, or a value of a mapping with
// free keys.
func isText(f config.Field) bool { return f.Key == "" || f.Secret || slices.Contains(texts, f.Key) }

// cutText warns of an unquoted text that YAML ends before a #.
func (d *decoder) cutText(n *node, path string) {
	if n.comment == "" || n.kind != scalar {
		return
	}
	d.Problem(n.at, path, "the text ends before %q, which YAML takes for a comment", " "+config.Short(n.comment)).Warning = true
	d.problems[len(d.problems)-1].Hint = n.quoted(LastKey(path))
}

// quoted returns a hint with the text and its comment as one quoted text, or "" without such a
// comment.
func (n *node) quoted(key string) string {
	if n.comment == "" {
		return ""
	}
	whole := strings.TrimSpace(n.text + " " + n.comment)
	if n.null() {
		whole = n.comment
	}
	if len(whole) > longestFlow || strings.ContainsAny(whole, "\n\r") {
		return "if the text continues there, put it in quotes"
	}
	return fmt.Sprintf("if it is part of the text, write %s: '%s'", key, strings.ReplaceAll(whole, "'", "''"))
}

// LastKey returns the last key of a path, without item numbers.
func LastKey(path string) string {
	path = itemNumber.ReplaceAllString(path, "")
	return path[strings.LastIndexByte(path, '.')+1:]
}

// shellVariable matches a shell variable at the end of a value, such as $KEY or Bearer $KEY.
var shellVariable = regexp.MustCompile(`(?:^|\s)\$([A-Z_][A-Z0-9_]*)$`)

// pathVariable matches a shell variable in a path.
var pathVariable = regexp.MustCompile(`(?:^|[/\\=:])\$([A-Za-z_][A-Za-z0-9_]*)(?:[/\\]|$)`)

// ShellPath returns an error for a path with a shell variable, which would become the name of a
// folder.
func ShellPath(text string) error {
	m := pathVariable.FindStringSubmatch(text)
	if m == nil {
		return nil
	}
	fixed := strings.Replace(text, "$"+m[1], "${"+m[1]+"}", 1)
	if rest, ok := strings.CutPrefix(text, "$HOME"); ok {
		return fmt.Errorf("%q names a folder $HOME, because no shell expands it; write ~ or ${HOME}, as in ~%s", config.Short(text), rest)
	}
	return fmt.Errorf("%q names a folder $%s, because no shell expands it; write ${%s}, as in %s", config.Short(text), m[1], m[1], fixed)
}

// keyPrefixes lists the prefixes of well-known keys, with a name for the secret.
var keyPrefixes = []struct{ prefix, name string }{
	{"sk-ant-", "anthropic"}, {"sk-or-", "openrouter"}, {"sk-", "openai"}, {"AIza", "gemini"}, {"gsk_", "groq"}, {"xai-", "xai"}, {"csk-", "cerebras"},
	{"fw_", "fireworks"}, {"ghp_", "github"}, {"github_pat_", "github"}, {"glpat-", "gitlab"}, {"xoxb-", "slack"}, {"whsec_", "webhook"}, {"hf_", "huggingface"},
}

// shortestKey is the minimum length of a value of api_key that is taken for a key, in bytes.
const shortestKey = 20

// writtenKey warns of a key in the file. The warning does not contain the key.
func (d *decoder) writtenKey(n *node, path, value string) {
	name, key := "", LastKey(path)
	for _, p := range keyPrefixes {
		if strings.HasPrefix(value, p.prefix) && len(value) >= shortestKey {
			name = p.name
			break
		}
	}
	if name == "" {
		if key != "api_key" || len(value) < shortestKey {
			return
		}
		name = "api"
	}

	p := d.Problem(n.at, path, "the key is in the file, so everyone who can read the file or a copy of it has the key")
	p.Warning = true
	p.Hint = fmt.Sprintf("keep it with: rouse secrets set %s, and write %s: secret:%s", name, key, name)
	if strings.ContainsAny(n.text, " ") { // Bearer KEY
		p.Hint = fmt.Sprintf("keep it with: rouse secrets set %s, and write ${secret:%s} in its place", name, name)
	}
}

// structureShape returns an example line for a mapping. It contains the written value if that fits
// one of the keys.
func (d *decoder) structureShape(n *node, path string, t reflect.Type) string {
	key := LastKey(path)
	shape := mappingExample(t, t)
	if f, ok := d.keyFor(n, t); ok {
		shape = "{" + withRequired(t, f, flow(n)) + "}"
	}
	if strings.HasSuffix(path, "]") {
		return "- " + strings.Trim(shape, "{}")
	}
	return key + ": " + shape
}

// withRequired writes a key with its value and the required keys beside it.
func withRequired(t reflect.Type, f config.Field, value string) string {
	parts := []string{f.Key + ": " + value}
	for _, other := range config.Fields(t) {
		if other.Required && other.Key != f.Key {
			parts = append(parts, other.Key+": "+example(t.Field(other.Index).Type, other))
		}
	}
	return strings.Join(parts, ", ")
}

// keyFor returns the key of a mapping that a value was probably meant for: a required key, or the
// first that accepts the value.
func (d *decoder) keyFor(n *node, t reflect.Type) (config.Field, bool) {
	if n.kind == mapping || n.null() {
		return config.Field{}, false
	}
	fields := config.Fields(t)
	needs := slices.ContainsFunc(fields, func(f config.Field) bool { return f.Required })
	for _, f := range fields {
		if f.Required == needs && d.takes(n, t.Field(f.Index).Type, f) {
			return f, true
		}
	}
	return config.Field{}, false
}

// takes reports whether the type of a key accepts a value.
func (d *decoder) takes(n *node, t reflect.Type, f config.Field) bool {
	if t.Kind() == reflect.Interface || t.Kind() == reflect.Map || t == reflect.TypeFor[config.After]() {
		return false
	}
	quiet := newDecoder(d.Getenv)
	quiet.value(n, "value", reflect.New(t).Elem(), f)
	return len(quiet.problems) == 0
}

// listShape returns an example line for a list.
func (d *decoder) listShape(n *node, path string, t reflect.Type, f config.Field) string {
	key, item := LastKey(path), structOf(t)
	if n.kind == mapping && item != nil && len(n.entries) > 0 {
		fields, first := config.Fields(item), n.entries[0]
		isKey := func(key string) bool {
			return slices.ContainsFunc(fields, func(f config.Field) bool { return f.Key == key })
		}
		if isKey("name") && !isKey(first.key) && first.value.kind == mapping { // a mapping by name, as in Compose and GitHub Actions
			named := &node{kind: mapping, entries: append([]entry{{key: "name", value: word(first.key, first.at)}}, first.value.entries...)}
			return key + ": [" + flow(named) + "], each with its name as a key"
		}
		return key + ": [" + flow(n) + "]"
	}
	return key + ": " + example(t, f)
}
