package config

import (
	"cmp"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// cutComment matches a comment that is probably part of a text, because real comments usually have a space after the #.
var cutComment = regexp.MustCompile(`^#[^\s#!-]`)

// texts lists the keys with texts, addresses or code, which can contain a #.
var texts = strings.Fields("prompt instructions soul title body reason url http that sql if argv command")

// isText reports whether a value can contain a #: a text, a secret, or a value of a mapping with free keys.
func (f field) isText() bool { return f.key == "" || f.secret || slices.Contains(texts, f.key) }

// cutText warns of an unquoted text that YAML ends before a #.
func (d *decoder) cutText(n *node, path string) {
	if n.comment == "" || n.kind != scalar {
		return
	}
	d.problem(n.at, path, "the text ends before %q, which YAML takes for a comment", " "+short(n.comment)).Warning = true
	d.problems[len(d.problems)-1].Hint = n.quoted(lastKey(path))
}

// quoted returns a hint with the text and its comment as one quoted text, or "" without such a comment.
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

// lastKey returns the last key of a path, without item numbers.
func lastKey(path string) string {
	path = itemNumber.ReplaceAllString(path, "")
	return path[strings.LastIndexByte(path, '.')+1:]
}

// shellVariable matches a shell variable at the end of a value, such as $KEY or Bearer $KEY.
var shellVariable = regexp.MustCompile(`(?:^|\s)\$([A-Z_][A-Z0-9_]*)$`)

// pathVariable matches a shell variable in a path.
var pathVariable = regexp.MustCompile(`(?:^|[/\\=:])\$([A-Za-z_][A-Za-z0-9_]*)(?:[/\\]|$)`)

// shellPath returns an error for a path with a shell variable, which would become the name of a folder.
func shellPath(text string) error {
	m := pathVariable.FindStringSubmatch(text)
	if m == nil {
		return nil
	}
	fixed := strings.Replace(text, "$"+m[1], "${"+m[1]+"}", 1)
	if rest, ok := strings.CutPrefix(text, "$HOME"); ok {
		return fmt.Errorf("%q names a folder $HOME, because no shell expands it; write ~ or ${HOME}, as in ~%s", short(text), rest)
	}
	return fmt.Errorf("%q names a folder $%s, because no shell expands it; write ${%s}, as in %s", short(text), m[1], m[1], fixed)
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
	name, key := "", lastKey(path)
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

	p := d.problem(n.at, path, "the key is in the file, so everyone who can read the file or a copy of it has the key")
	p.Warning = true
	p.Hint = fmt.Sprintf("keep it with: rouse secrets set %s, and write %s: secret:%s", name, key, name)
	if strings.ContainsAny(n.text, " ") { // Bearer KEY
		p.Hint = fmt.Sprintf("keep it with: rouse secrets set %s, and write ${secret:%s} in its place", name, name)
	}
}

// structureShape returns an example line for a mapping. It contains the written value if that fits one of the keys.
func (d *decoder) structureShape(n *node, path string, t reflect.Type) string {
	key := lastKey(path)
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
func withRequired(t reflect.Type, f field, value string) string {
	parts := []string{f.key + ": " + value}
	for _, other := range fieldsOf(t) {
		if other.need && other.key != f.key {
			parts = append(parts, other.key+": "+example(t.Field(other.index).Type, other))
		}
	}
	return strings.Join(parts, ", ")
}

// keyFor returns the key of a mapping that a value was probably meant for: a required key, or the first that accepts the value.
func (d *decoder) keyFor(n *node, t reflect.Type) (field, bool) {
	if n.kind == mapping || n.null() {
		return field{}, false
	}
	fields := fieldsOf(t)
	needs := slices.ContainsFunc(fields, func(f field) bool { return f.need })
	for _, f := range fields {
		if f.need == needs && d.takes(n, t.Field(f.index).Type, f) {
			return f, true
		}
	}
	return field{}, false
}

// takes reports whether the type of a key accepts a value.
func (d *decoder) takes(n *node, t reflect.Type, f field) bool {
	if t.Kind() == reflect.Interface || t.Kind() == reflect.Map || t == reflect.TypeFor[After]() {
		return false
	}
	quiet := newDecoder(d.Getenv)
	quiet.value(n, "value", reflect.New(t).Elem(), f)
	return len(quiet.problems) == 0
}

// listShape returns an example line for a list.
func (d *decoder) listShape(n *node, path string, t reflect.Type, f field) string {
	key, item := lastKey(path), structOf(t)
	if n.kind == mapping && item != nil && len(n.entries) > 0 {
		fields, first := fieldsOf(item), n.entries[0]
		isKey := func(key string) bool {
			return slices.ContainsFunc(fields, func(f field) bool { return f.key == key })
		}
		if isKey("name") && !isKey(first.key) && first.value.kind == mapping { // a mapping by name, as in Compose and GitHub Actions
			named := &node{kind: mapping, entries: append([]entry{{key: "name", value: word(first.key, first.at)}}, first.value.entries...)}
			return key + ": [" + flow(named) + "], each with its name as a key"
		}
		return key + ": [" + flow(n) + "]"
	}
	return key + ": " + example(t, f)
}

// watchedPattern reports a pattern in watch.path, which must be a folder.
func (c *checker) watchedPattern(at string, w *watch) bool {
	if _, err := os.Stat(string(w.Path)); err == nil || !strings.ContainsAny(string(w.Path), "*?") {
		return false
	}

	written := string(w.Path)
	if n, whole := c.d.root.find(at); whole {
		written = filepath.ToSlash(n.text)
	}
	folder := written[:strings.IndexAny(written, "*?")]
	folder = cmp.Or(strings.TrimSuffix(folder[:strings.LastIndexByte(folder, '/')+1], "/"), ".")
	lines := "path: " + flow(word(folder, Position{})) + ", include: [" + flow(word(path.Base(written), Position{})) + "]"
	if strings.Count(strings.TrimPrefix(written, folder), "/") > 1 {
		lines += ", recursive: true"
	}
	c.bad(at, "%q is a pattern, but path must be a folder", short(written)).Hint = "write " + lines
	return true
}

// serviceURLs lists addresses that services show in their settings, with the equivalent channel settings.
var serviceURLs = []struct{ prefix, lines string }{
	{"https://hooks.slack.com/", "kind: url, url: slack://hook:T…-B…-X…@webhook, with the three parts after /services/"},
	{"https://discord.com/api/webhooks/", "kind: url, url: discord://TOKEN@ID, with the two parts ID/TOKEN after /webhooks/"},
	{"https://discordapp.com/api/webhooks/", "kind: url, url: discord://TOKEN@ID, with the two parts ID/TOKEN after /webhooks/"},
	{"https://api.telegram.org/bot", "kind: url, url: telegram://TOKEN@telegram?chats=CHAT, with the token after /bot"},
	{"https://ntfy.sh/", "kind: url, url: ntfy://ntfy.sh/TOPIC"},
	{"ntfy.sh/", "kind: url, url: ntfy://ntfy.sh/TOPIC"},
}

// serviceURL returns the channel settings for an address of a known service, or "". They do not contain the address, because it is secret.
func serviceURL(address string) string {
	for _, s := range serviceURLs {
		if strings.HasPrefix(address, s.prefix) {
			return "write " + s.lines + "; better write secret:NAME and store it with: rouse secrets set NAME"
		}
	}
	return ""
}
