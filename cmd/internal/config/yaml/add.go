package yaml

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

// ErrStyle is returned if the style of a list does not allow inserting lines.
var ErrStyle = errors.New("no lines can be inserted there")

// Add inserts an item at the end of a list such as jobs in the text of a configuration. It returns
// the new text and the number of the item's first line. The item is a YAML sequence with one
// entry, without indentation; comments may precede the entry.
//
// All other lines remain unchanged, including comments, order and line ends. Only an empty list
// such as [] loses its brackets. Add parses the result and returns ErrStyle unless it equals the
// old document plus the item.
func Add(content []byte, list, item string) ([]byte, int, error) {
	body := bytes.TrimPrefix(content, byteOrderMark)
	root, err := parseMapping(body)
	if err != nil {
		return nil, 0, err
	}
	added, err := parseDocument([]byte(item))
	if err != nil {
		return nil, 0, err
	}
	if len(added.Content) != 1 {
		return nil, 0, fmt.Errorf("the text is not one entry of a list: %q", item)
	}

	s, err := locate(root, bytes.SplitAfter(body, []byte("\n")), list)
	if err != nil {
		return nil, 0, err
	}
	// A blank line would become part of a block text (|+) above it.
	for _, blank := range slices.Compact([]bool{s.blank, false}) {
		out, line := s.insert(list, item, blank)
		now, err := parseMapping(out)
		if err == nil && s.grew(root, now, list, added.Content[0]) {
			return append(content[:len(content)-len(body):len(content)-len(body)], out...), line, nil
		}
	}
	return nil, 0, ErrStyle
}

var byteOrderMark = []byte("\xef\xbb\xbf")

func parseDocument(text []byte) (*yaml.Node, error) {
	var doc yaml.Node
	if err := decodeSafely(yaml.NewDecoder(bytes.NewReader(text)), &doc); err != nil {
		return nil, err
	}
	if doc.Kind == yaml.DocumentNode && len(doc.Content) == 1 {
		return doc.Content[0], nil
	}
	return &doc, nil
}

// parseMapping parses a file with a single document, which must be a mapping.
func parseMapping(text []byte) (*yaml.Node, error) {
	root, err := parseDocument(text)
	if err == nil && root.Kind != yaml.MappingNode {
		err = errors.New("the file must be a mapping of keys")
	}
	if err == nil && root.Style&yaml.FlowStyle != 0 {
		err = ErrStyle
	}
	return root, err
}

// section describes the end of a list, or the place for a new one.
type section struct {
	lines  [][]byte // with their line ends
	at     int      // index of the line before which the item is inserted
	indent string   // indentation of the item
	header string   // indentation of the key; only used if the list is missing
	there  bool     // the list or its key exists
	blank  bool     // a blank line belongs before the item
}

// locate finds the section of a list.
func locate(root *yaml.Node, lines [][]byte, list string) (*section, error) {
	s := &section{lines: lines, header: strings.Repeat(" ", max(root.Column-1, 0)), blank: true}
	if len(lines[len(lines)-1]) == 0 {
		s.lines = lines[:len(lines)-1]
	}
	s.at = len(s.lines)
	for s.at > 0 && (blankLine(s.lines[s.at-1]) || bytes.HasPrefix(s.lines[s.at-1], []byte("..."))) {
		s.at--
	}

	// Indent a new list like the existing ones.
	s.indent = s.header + "  "
	for i := 1; i < len(root.Content); i += 2 {
		if v := root.Content[i]; v.Kind == yaml.SequenceNode && s.dash(v) {
			s.indent = strings.Repeat(" ", v.Column-1)
			break
		}
	}

	key := keyOf(root, list)
	if key < 0 {
		return s, nil
	}

	s.there = true
	value := root.Content[key+1]
	first := root.Content[key].Line // index of the line after the key
	if key+2 < len(root.Content) {
		s.at = min(s.at, root.Content[key+2].Line-1)
	}
	switch {
	case value.Kind == yaml.SequenceNode && len(value.Content) > 0:
		if !s.dash(value) {
			return nil, ErrStyle
		}
		first = value.Content[len(value.Content)-1].Line
		s.indent = strings.Repeat(" ", value.Column-1)
	case value.Kind == yaml.SequenceNode && s.cut(value, "[]"), value.Tag == "!!null" && s.cut(value, value.Value):
	default:
		return nil, ErrStyle
	}

	// Comments with at least the indentation of the items belong to the items.
	for s.at > first && (blankLine(s.lines[s.at-1]) || s.outerComment(s.lines[s.at-1])) {
		s.at--
	}
	above := bytes.Join(s.lines[first:s.at], nil)
	s.blank = len(bytes.TrimSpace(above)) > 0 || len(value.Content) > 0
	if n := len(value.Content); n > 1 { // like the existing items
		s.blank = slices.ContainsFunc(s.lines[value.Line-1:first], blankLine)
	}
	return s, nil
}

func keyOf(mapping *yaml.Node, key string) int {
	for i := 0; i < len(mapping.Content); i += 2 {
		if n := mapping.Content[i]; n.Kind == yaml.ScalarNode && n.Value == key {
			return i
		}
	}
	return -1
}

func blankLine(line []byte) bool { return len(bytes.TrimSpace(line)) == 0 }

func (s *section) outerComment(line []byte) bool {
	text := bytes.TrimLeft(line, " ")
	return text[0] == '#' && len(line)-len(text) < max(len(s.indent), 1)
}

// dash reports whether a sequence is written with a dash before each item.
func (s *section) dash(n *yaml.Node) bool {
	if n.Style&yaml.FlowStyle != 0 || n.Line > len(s.lines) || n.Column > len(s.lines[n.Line-1]) {
		return false
	}
	line := s.lines[n.Line-1]
	return line[n.Column-1] == '-' && len(bytes.TrimLeft(line[:n.Column-1], " ")) == 0
}

// cut removes the text of an empty value. It returns false if the text is not at the parser's
// position.
func (s *section) cut(n *yaml.Node, text string) bool {
	if text == "" {
		return true
	}
	line := s.lines[n.Line-1]
	if len(line) < n.Column || !bytes.HasPrefix(line[n.Column-1:], []byte(text)) {
		return false
	}
	s.lines = slices.Clone(s.lines)
	s.lines[n.Line-1] = slices.Concat(bytes.TrimRight(line[:n.Column-1], " "), line[n.Column-1+len(text):])
	return true
}

// insert returns the text with the item, and the number of the item's first line.
func (s *section) insert(list, item string, blank bool) ([]byte, int) {
	end := "\n"
	if bytes.HasSuffix(s.lines[0], []byte("\r\n")) {
		end = "\r\n"
	}

	before := bytes.Join(s.lines[:s.at], nil)
	if len(before) > 0 && before[len(before)-1] != '\n' {
		before = append(before, end...)
	}
	var add strings.Builder
	line := s.at + 1
	if blank {
		add.WriteString(end)
		line++
	}
	if !s.there {
		add.WriteString(s.header + list + ":" + end)
		line++
	}
	for one := range strings.SplitSeq(strings.TrimRight(item, "\n"), "\n") {
		if one != "" {
			add.WriteString(s.indent + one)
		}
		add.WriteString(end)
	}
	return slices.Concat(before, []byte(add.String()), bytes.Join(s.lines[s.at:], nil)), line
}

// grew reports whether a document equals an older one except for one new item in a list.
func (s *section) grew(old, now *yaml.Node, list string, item *yaml.Node) bool {
	want := &yaml.Node{Kind: yaml.MappingNode, Tag: old.Tag, Content: slices.Clone(old.Content)}
	if !s.there {
		want.Content = append(want.Content, plainText(list), &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"})
	}
	at := keyOf(want, list) + 1
	value := want.Content[at]
	want.Content[at] = &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq", Anchor: value.Anchor}
	want.Content[at].Content = append(slices.Clone(value.Content), item)
	// A text at the end of the file gets the line end that the file lacked.
	unended := !bytes.HasSuffix(s.lines[len(s.lines)-1], []byte("\n"))
	return sameTree(want, now, unended)
}

// sameTree reports whether two trees are equal. If unended is true, a text may have gained a line
// end.
func sameTree(a, b *yaml.Node, unended bool) bool {
	return a.Kind == b.Kind && a.Tag == b.Tag && a.Anchor == b.Anchor && len(a.Content) == len(b.Content) &&
		(a.Value == b.Value || unended && a.Value+"\n" == b.Value) &&
		slices.EqualFunc(a.Content, b.Content, func(a, b *yaml.Node) bool { return sameTree(a, b, unended) })
}

// Literal formats a text as the value of a key and escapes ${. Lines after the first begin with
// indent, the indentation of the key.
func Literal(text, indent string) string {
	text = escape(strings.ToValidUTF8(text, "\ufffd")) // YAML requires valid UTF-8
	out, err := yaml.Marshal(plainText(text))
	if err != nil {
		return strconv.Quote(text)
	}
	return strings.ReplaceAll(strings.TrimRight(string(out), "\n"), "\n", "\n"+indent)
}
