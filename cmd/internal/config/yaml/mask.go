package yaml

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"

	"rouse/agent/redact"
	"rouse/cmd/internal/config"
)

// withheld replaces the text of a file if its secrets cannot be located.
const withheld = "# [secret]: this file is not shown, because its secrets cannot be masked; check it with: rouse config check\n"

// Mask replaces the given secrets and those in the file by redact.Mark. The line numbers do not
// change. If it cannot locate the secrets, for example because the file is not YAML, it returns
// withheld and false.
func Mask(c *config.Config, file string, content []byte, secrets []string) (masked []byte, kept bool) {
	if slices.Contains(c.Texts, file) {
		return []byte(redact.New(slices.Concat(secrets, c.Secrets.Values)).Replace(string(content))), true
	}
	return maskYAML(file, content, slices.Concat(secrets, c.Secrets.Values))
}

func maskYAML(file string, content []byte, secrets []string) (masked []byte, kept bool) {
	content = bytes.TrimPrefix(content, []byte("\xef\xbb\xbf"))
	hide := redact.New(slices.Concat(secrets, spelledOut(file, content)))
	docs, err := documents(content)
	if err != nil {
		return []byte(withheld), false
	}

	var nodes []*yaml.Node
	for _, doc := range docs {
		nodes = scalars(nodes, doc)
	}
	want := make([]string, len(nodes))
	for i, n := range nodes {
		want[i] = hide.Replace(n.Value)
	}

	if masked = maskInPlace(content, nodes, want, hide); hasScalars(masked, want) {
		return masked, true
	}
	return []byte(withheld), false
}

// spelledOut returns the secrets in the file itself, which may have changed since it was loaded.
func spelledOut(file string, content []byte) []string {
	d := newDecoder(func(string) string { return "" })
	if root := d.parse(file, content); root != nil {
		d.value(root, "", reflect.ValueOf(&config.Config{}).Elem(), config.Field{})
	}
	return d.secrets
}

// documents parses all documents of a file.
func documents(content []byte) (docs []*yaml.Node, err error) {
	dec := yaml.NewDecoder(bytes.NewReader(content))
	for {
		doc := &yaml.Node{}
		if err := decodeSafely(dec, doc); errors.Is(err, io.EOF) {
			return docs, nil
		} else if err != nil {
			return nil, err
		}
		docs = append(docs, doc)
	}
}

// scalars appends the keys and values below a node in the order of the text.
func scalars(to []*yaml.Node, n *yaml.Node) []*yaml.Node {
	if n.Kind == yaml.ScalarNode {
		to = append(to, n)
	}
	for _, inner := range n.Content {
		to = scalars(to, inner)
	}
	return to
}

// hasScalars reports whether a text is YAML with exactly these scalars.
func hasScalars(masked []byte, want []string) bool {
	docs, err := documents(masked)
	if err != nil {
		return false
	}
	var nodes []*yaml.Node
	for _, doc := range docs {
		nodes = scalars(nodes, doc)
	}
	return slices.EqualFunc(nodes, want, func(n *yaml.Node, value string) bool { return n.Value == value })
}

// maskInPlace replaces scalars by the wanted values, and secrets elsewhere, such as in comments.
func maskInPlace(content []byte, nodes []*yaml.Node, want []string, hide *redact.Redactor) []byte {
	lines := lineOffsets(content)
	var out strings.Builder
	done := 0
	for i, n := range nodes {
		if n.Value == want[i] {
			continue
		}
		next := len(lines) // line of the next scalar
		if i+1 < len(nodes) {
			next = nodes[i+1].Line - 1
		}
		from, to := sourceOf(content, lines, n, next)
		if from < done || to <= from {
			return nil
		}
		out.WriteString(hide.Replace(string(content[done:from])))
		out.WriteString(strconv.Quote(want[i]))
		done = to
		for range bytes.Count(content[from:to], []byte("\n")) {
			out.WriteByte('\n')
		}
	}
	out.WriteString(hide.Replace(string(content[done:])))
	return []byte(out.String())
}

// lineOffsets returns the offset of each line.
func lineOffsets(content []byte) []int {
	out := []int{0}
	for i, c := range content {
		if c == '\n' {
			out = append(out, i+1)
		}
	}
	return out
}

// sourceOf returns the range of a scalar in the text, without its anchor and tag. It returns an
// empty range if it cannot find the scalar.
func sourceOf(content []byte, lines []int, n *yaml.Node, next int) (from, to int) {
	if n.Line < 1 || n.Line > len(lines) {
		return 0, 0
	}
	from = lines[n.Line-1]
	for range n.Column - 1 { // in characters
		_, size := utf8.DecodeRune(content[from:])
		from += size
	}
	for { // skip an anchor and a tag, in either order
		rest := content[from:]
		blanks := len(rest) - len(bytes.TrimLeft(rest, " \t\r\n"))
		if rest = rest[blanks:]; len(rest) == 0 {
			return 0, 0
		}
		if rest[0] != '&' && rest[0] != '!' {
			from += blanks
			break
		}
		word := bytes.IndexAny(rest, " \t\r\n")
		if word < 0 {
			return 0, 0
		}
		from += blanks + word
	}

	rest := content[from:]
	switch {
	case n.Style&yaml.DoubleQuotedStyle != 0:
		return from, from + quotedLength(rest, '"', '\\')
	case n.Style&yaml.SingleQuotedStyle != 0:
		return from, from + quotedLength(rest, '\'', '\'')
	case n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0:
		return from, blockEnd(content, lines, from, next)
	}
	to = from
	for word := range strings.FieldsSeq(n.Value) { // a plain scalar is written as is, except for spaces between words
		to += len(content[to:]) - len(bytes.TrimLeft(content[to:], " \t\r\n"))
		if !bytes.HasPrefix(content[to:], []byte(word)) {
			return 0, 0
		}
		to += len(word)
	}
	return from, to
}

// quotedLength returns the length of a quoted scalar, or 0 if it is not terminated. The escape
// character also escapes the quote.
func quotedLength(text []byte, quote, escape byte) int {
	for i := 1; i < len(text); i++ {
		switch {
		case text[i] == escape && i+1 < len(text) && (escape != quote || text[i+1] == quote):
			i++
		case text[i] == quote:
			return i + 1
		}
	}
	return 0
}

// blockEnd returns the end of a block scalar: its last line with the indentation of the first. If
// its header has an indentation, it is the last line before the next scalar.
func blockEnd(content []byte, lines []int, from, next int) int {
	first, _ := slices.BinarySearch(lines, from+1)
	header := content[from:]
	if first < len(lines) {
		header = content[from:lines[first]]
	}
	header, _, _ = bytes.Cut(header, []byte("#"))
	said := bytes.ContainsAny(header, "123456789")
	end, indent := len(bytes.TrimRight(content[:from+len(header)], " \t\r\n")), -1
	for i := first; i < min(next, len(lines)); i++ {
		line := content[lines[i]:]
		if i+1 < len(lines) {
			line = content[lines[i]:lines[i+1]]
		}
		text := bytes.TrimRight(line, " \t\r\n")
		if len(text) == 0 {
			continue
		}
		depth := len(text) - len(bytes.TrimLeft(text, " "))
		if indent < 0 {
			indent = depth
		}
		if depth < indent && !said {
			break
		}
		end = lines[i] + len(text)
	}
	return end
}
