package yaml

import (
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"rouse/cmd/internal/config"
)

const (
	maxDepth = 50      // maximum depth of a tree; the settings need nine
	maxNodes = 100_000 // maximum nodes from aliases, against alias bombs
)

type kind int

const (
	scalar kind = iota
	list
	mapping
)

// node is a value of a file. Aliases and merge keys are resolved, so nodes form a tree.
type node struct {
	kind    kind
	tag     string // tag of a scalar: !!str, !!int, …
	text    string // text of a scalar
	items   []*node
	entries []entry
	at      config.Position
	// comment is the comment after an unquoted text if its # has no space after it. It may be part
	// of the text.
	comment string
}

// entry is a key of a mapping with its value.
type entry struct {
	key   string
	at    config.Position
	value *node
}

func word(text string, at config.Position) *node {
	return &node{kind: scalar, tag: "!!str", text: text, at: at}
}

func wordList(words []string) *node {
	n := &node{kind: list}
	for _, one := range words {
		n.items = append(n.items, word(one, config.Position{}))
	}
	return n
}

func (n *node) null() bool { return n.kind == scalar && n.tag == "!!null" }

// entry returns the entry of a key, or nil if the mapping lacks it.
func (n *node) entry(key string) *entry {
	for i := range n.entries {
		if n.entries[i].key == key {
			return &n.entries[i]
		}
	}
	return nil
}

// child returns the value of a key, or nil if the mapping lacks it.
func (n *node) child(key string) *node {
	if e := n.entry(key); e != nil {
		return e.value
	}
	return nil
}

// find follows a path like jobs[1].watch.path. It returns the value and true, or the nearest
// parent that exists and false.
func (n *node) find(path string) (nearest *node, whole bool) {
	for path != "" {
		next, rest := n.step(path)
		if next == nil {
			return n, false
		}
		n, path = next, rest
	}
	return n, true
}

// step follows the first key or index of a path and returns the rest of the path. It returns nil
// if the key or index does not exist.
func (n *node) step(path string) (next *node, rest string) {
	if n.kind != mapping {
		index, behind, _ := strings.Cut(strings.TrimPrefix(path, "["), "]")
		switch i, err := strconv.Atoi(index); {
		case err != nil || i < 0:
		case n.kind == list && i < len(n.items):
			next = n.items[i]
		case n.kind == scalar && !n.null() && i == 0: // a scalar may stand for a list of one item
			next = n
		}
		return next, strings.TrimPrefix(behind, ".")
	}

	longest := -1 // a key may contain a dot
	for _, e := range n.entries {
		key := config.Short(e.key)
		behind, ok := strings.CutPrefix(path, key)
		if ok && len(key) > longest && (behind == "" || behind[0] == '.' || behind[0] == '[') {
			longest, next, rest = len(key), e.value, strings.TrimPrefix(behind, ".")
		}
	}
	return next, rest
}

// String describes a value in messages.
func (n *node) String() string {
	switch {
	case n.kind == mapping:
		return "a mapping"
	case n.kind == list:
		return "a list"
	case n.null():
		return "nothing"
	}
	return strconv.Quote(config.Short(n.text))
}

// builder converts the nodes of the parser to a tree.
type builder struct {
	d     *decoder
	file  string
	open  []*yaml.Node // aliases that are being resolved
	depth int
	count int  // number of nodes from aliases
	full  bool // a limit was reached and reported
}

func (b *builder) problem(n *yaml.Node, path, format string, args ...any) {
	b.d.Problem(b.place(n), path, format, args...)
}

func (b *builder) place(n *yaml.Node) config.Position {
	return config.Position{File: b.file, Line: n.Line, Column: n.Column}
}

// node never returns nil. For a value that cannot be read, it returns an empty text and reports a
// problem.
func (b *builder) node(n *yaml.Node, path string) *node {
	out := &node{at: b.place(n), tag: "!!null"}
	if len(b.open) > 0 {
		b.count++
	}

	// Only nodes from aliases count, because a file without them is limited by its size.
	if b.count > maxNodes || b.depth > maxDepth {
		if !b.full {
			b.problem(n, path, "the file is nested too deeply, or its aliases make it too large")
		}
		b.full = true
		return out
	}

	b.depth++
	defer func() { b.depth-- }()

	switch n.Kind {
	case yaml.AliasNode:
		return b.alias(n, path)
	case yaml.MappingNode:
		out.kind, out.entries = mapping, b.entries(n, path)
	case yaml.SequenceNode:
		out.kind = list
		for i, item := range n.Content {
			out.items = append(out.items, b.node(item, config.ItemOf(path, i)))
		}
	case yaml.ScalarNode:
		if out.tag, out.text = n.Tag, n.Value; !slices.Contains(plainTags, n.Tag) {
			b.problem(n, path, "the tag %s is not understood here", b.tag(n, path))
			out.tag = "!!str"
		}
		if n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) == 0 && cutComment.MatchString(n.LineComment) {
			out.comment = n.LineComment
		}
	}

	return out
}

// tag returns a tag for messages. It hides the tag of a secret, which may be part of an unquoted
// value.
func (b *builder) tag(n *yaml.Node, path string) string {
	if secretKey.MatchString(path) || isSecretMap(path) {
		return "(" + masked + ")"
	}
	return n.Tag
}

var plainTags = []string{"!!str", "!!int", "!!float", "!!bool", "!!null", "!!timestamp", "!!merge"}

func (b *builder) alias(n *yaml.Node, path string) *node {
	if n.Alias == nil || slices.Contains(b.open, n.Alias) {
		b.problem(n, path, "the alias *%s contains itself", n.Value)
		return &node{at: b.place(n), tag: "!!null"}
	}
	b.open = append(b.open, n.Alias)
	defer func() { b.open = b.open[:len(b.open)-1] }()
	return b.node(n.Alias, path)
}

// entries reads the keys of a mapping. Written keys take precedence over those from <<.
func (b *builder) entries(n *yaml.Node, path string) []entry {
	var out, merged []entry
	lines := map[string]int{} // line of the first occurrence
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		// A key may be an alias of a word, as in {*name : 1}.
		if key.Kind == yaml.AliasNode && key.Alias != nil {
			key = key.Alias
		}
		if key.Kind != yaml.ScalarNode {
			b.problem(n.Content[i], path, "a key must be a word")
			continue
		}

		if key.Tag == "!!merge" {
			merged = append(merged, b.merge(value, path)...)
			continue
		}

		e := entry{key.Value, b.place(n.Content[i]), b.node(value, config.Join(path, key.Value))}
		if e.value.null() && cutComment.MatchString(key.LineComment) { // the parser attaches the comment to the key
			e.value.comment = key.LineComment
		}
		if first := lines[e.key]; first > 0 {
			b.d.Problem(e.at, config.Join(path, e.key), "is given twice, first in line %d", first)
			continue
		}

		lines[e.key] = e.at.Line
		out = append(out, e)
	}

	for _, e := range merged {
		// Written keys take precedence over << keys, and an earlier << over later ones.
		if lines[e.key] == 0 {
			lines[e.key] = e.at.Line
			out = append(out, e)
		}
	}

	return out
}

// merge returns the entries of a << key, which is a mapping or a list of mappings. Earlier ones
// win.
func (b *builder) merge(value *yaml.Node, path string) []entry {
	from := b.node(value, path)
	if from.kind == mapping {
		return from.entries
	}

	var out []entry
	for _, item := range from.items {
		if item.kind != mapping {
			from = item
			break
		}
		out = append(out, item.entries...)
	}

	if from.kind != list {
		b.problem(value, path, "<< takes a mapping, not %s", from)
	}

	return out
}
