package config

import (
	"cmp"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"rouse/internal/pattern"
)

// cutComment matches a comment that is likely the rest of a text: people write a space after the # of a comment.
var cutComment = pattern.New(`^#[^\s#!-]`)

// texts are the keys whose values are texts, addresses or code, of which a # can be a part.
var texts = strings.Fields("prompt instructions soul title body reason url http that sql if argv command")

// isText reports whether a # can be a part of a value: of a text, of a secret, and of what a mapping of any names holds.
func (f field) isText() bool { return f.key == "" || f.secret || slices.Contains(texts, f.key) }

// cutText warns of a text without quotes that YAML ends before a #.
func (d *decoder) cutText(n *node, path string) {
	if n.comment == "" || n.kind != scalar {
		return
	}
	d.problem(n.at, path, "the text ends before %q, which YAML takes for a comment", " "+short(n.comment)).Warning = true
	d.problems[len(d.problems)-1].Hint = n.quoted(lastKey(path))
}

// quoted returns the line with the text and its comment as one, "" without such a comment.
func (n *node) quoted(key string) string {
	if n.comment == "" {
		return ""
	}
	whole := strings.TrimSpace(n.text + " " + n.comment)
	if n.null() {
		whole = n.comment
	}
	if len(whole) > longestFlow || strings.ContainsAny(whole, "\n\r") {
		return "put the whole text in quotes if it goes on there"
	}
	return fmt.Sprintf("if it is part of the text, write %s: '%s'", key, strings.ReplaceAll(whole, "'", "''"))
}

// lastKey is the last key of a path, without the number of an item.
func lastKey(path string) string {
	path = itemNumber.ReplaceAllString(path, "")
	return path[strings.LastIndexByte(path, '.')+1:]
}

// shellVariable is the variable of a shell at the end of a value, such as $KEY or Bearer $KEY.
var shellVariable = pattern.New(`(?:^|\s)\$([A-Z_][A-Z0-9_]*)$`)

// pathVariable is a folder of a path that only a shell would replace.
var pathVariable = pattern.New(`(?:^|[/\\=:])\$([A-Za-z_][A-Za-z0-9_]*)(?:[/\\]|$)`)

// shellPath returns an error for a path with the variable of a shell, which would be the name of a folder here.
func shellPath(text string) error {
	m := pathVariable.FindStringSubmatch(text)
	if m == nil {
		return nil
	}
	fixed := strings.Replace(text, "$"+m[1], "${"+m[1]+"}", 1)
	if rest, ok := strings.CutPrefix(text, "$HOME"); ok {
		return fmt.Errorf("%q names a folder $HOME: no shell replaces it; write ~ or ${HOME}, as in ~%s", short(text), rest)
	}
	return fmt.Errorf("%q names a folder $%s: no shell replaces it; write ${%s}, as in %s", short(text), m[1], m[1], fixed)
}

// keyPrefixes are the beginnings of well-known keys, with the name under which a secret store may keep each.
var keyPrefixes = []struct{ prefix, name string }{
	{"sk-ant-", "anthropic"}, {"sk-or-", "openrouter"}, {"sk-", "openai"}, {"AIza", "gemini"}, {"gsk_", "groq"}, {"xai-", "xai"}, {"csk-", "cerebras"},
	{"fw_", "fireworks"}, {"ghp_", "github"}, {"github_pat_", "github"}, {"glpat-", "gitlab"}, {"xoxb-", "slack"}, {"whsec_", "webhook"}, {"hf_", "huggingface"},
}

// shortestKey is the length from which the value of api_key is taken for a key, in bytes.
const shortestKey = 20

// writtenKey warns of a key that is written in the file, without repeating it.
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

	p := d.problem(n.at, path, "the key is written in the file, where every reader and every copy of the file has it")
	p.Warning = true
	p.Hint = fmt.Sprintf("keep it with: rouse secrets set %s, and write %s: secret:%s", name, key, name)
	if strings.ContainsAny(n.text, " ") { // Bearer KEY
		p.Hint = fmt.Sprintf("keep it with: rouse secrets set %s, and write ${secret:%s} in its place", name, name)
	}
}

// structureShape returns the line that a mapping is written as, with what was given in its place if it fits one key.
func (d *decoder) structureShape(n *node, path string, t reflect.Type) string {
	r := referrer{known: d.tags}
	key := lastKey(path)
	shape := r.mappingExample(t, t)
	if f, ok := d.keyFor(n, t); ok {
		shape = "{" + d.withRequired(t, f, flow(n)) + "}"
	}
	if strings.HasSuffix(path, "]") {
		return "- " + strings.Trim(shape, "{}")
	}
	return key + ": " + shape
}

// withRequired writes a key with its value, and what must stand beside it.
func (d *decoder) withRequired(t reflect.Type, f field, value string) string {
	parts := []string{f.key + ": " + value}
	r := referrer{known: d.tags}
	for _, other := range d.tags.of(t) {
		if other.need && other.key != f.key {
			parts = append(parts, other.key+": "+r.example(t.Field(other.index).Type, other))
		}
	}
	return strings.Join(parts, ", ")
}

// keyFor returns the key of a mapping for which a value was likely meant: one that must be given, or the first that takes it.
func (d *decoder) keyFor(n *node, t reflect.Type) (field, bool) {
	if n.kind == mapping || n.null() {
		return field{}, false
	}
	fields := d.tags.of(t)
	needs := slices.ContainsFunc(fields, func(f field) bool { return f.need })
	for _, f := range fields {
		if f.later == "" && f.need == needs && d.takes(n, t.Field(f.index).Type, f) {
			return f, true
		}
	}
	return field{}, false
}

// takes reports whether a key takes a value, as far as types and words tell.
func (d *decoder) takes(n *node, t reflect.Type, f field) bool {
	if t.Kind() == reflect.Interface || t.Kind() == reflect.Map || t == reflect.TypeFor[After]() {
		return false
	}
	quiet := newDecoder(d.getenv)
	quiet.tags = d.tags
	quiet.value(n, "value", reflect.New(t).Elem(), f)
	return len(quiet.problems) == 0
}

// listShape returns the line that a list is written as.
func (d *decoder) listShape(n *node, path string, t reflect.Type, f field) string {
	key, item := lastKey(path), structOf(t)
	if n.kind == mapping && item != nil && len(n.entries) > 0 {
		fields, first := d.tags.of(item), n.entries[0]
		isKey := func(key string) bool {
			return slices.ContainsFunc(fields, func(f field) bool { return f.key == key })
		}
		if isKey("name") && !isKey(first.key) && first.value.kind == mapping { // a mapping of names, as Compose and GitHub have it
			named := &node{kind: mapping, entries: append([]entry{{key: "name", value: word(first.key, first.at)}}, first.value.entries...)}
			return key + ": [" + flow(named) + "], each with its name as a key"
		}
		return key + ": [" + flow(n) + "]"
	}
	r := referrer{known: d.tags}
	return key + ": " + r.example(t, f)
}

// watchedPattern refuses a pattern in the place of the folder of a watch.
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
	c.bad(at, "%q is a pattern, and a watch takes a folder", short(written)).Hint = "write " + lines
	return true
}

// serviceURLs are the addresses that services show in their settings, with the form that a channel takes.
var serviceURLs = []struct{ prefix, lines string }{
	{"https://hooks.slack.com/", "kind: url, url: slack://hook:T…-B…-X…@webhook, of the three parts behind /services/"},
	{"https://discord.com/api/webhooks/", "kind: url, url: discord://TOKEN@ID, of the two parts ID/TOKEN behind /webhooks/"},
	{"https://discordapp.com/api/webhooks/", "kind: url, url: discord://TOKEN@ID, of the two parts ID/TOKEN behind /webhooks/"},
	{"https://api.telegram.org/bot", "kind: url, url: telegram://TOKEN@telegram?chats=CHAT, of the token behind /bot"},
	{"https://ntfy.sh/", "kind: url, url: ntfy://ntfy.sh/TOPIC"},
	{"ntfy.sh/", "kind: url, url: ntfy://ntfy.sh/TOPIC"},
}

// serviceURL returns the lines for an address that a service shows, "" for any other. It repeats nothing of the address, which is a secret.
func serviceURL(address string) string {
	for _, s := range serviceURLs {
		if strings.HasPrefix(address, s.prefix) {
			return "write " + s.lines + "; best as secret:NAME, kept with: rouse secrets set NAME"
		}
	}
	return ""
}
