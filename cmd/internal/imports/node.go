package imports

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

// node is a value of a YAML or JSON file: keys in their order, and where it stands.
type node struct {
	line  int    // 0: not known
	text  string // of a scalar
	kind  byte   // s: scalar, n: null, l: list, m: map
	keys  []string
	items []*node // of a list, or the values of the keys
	used  map[string]bool
}

const (
	// maxNodes is how many values a file may have, counting what its aliases repeat.
	maxNodes = 100_000
	maxDepth = 50
)

var errTooLarge = fmt.Errorf("the file has more than %d values, or lies deeper than %d", maxNodes, maxDepth)

// parseYAML reads each document of a file.
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
			if key.Value == "<<" && value.kind == 'm' {
				for k, name := range value.keys {
					n.fallback(name, value.items[k])
				}
				continue
			}
			n.put(key.Value, value)
		}
	}
	return n, nil
}

func (n *node) put(key string, value *node) {
	for i, k := range n.keys {
		if k == key {
			n.items[i] = value
			return
		}
	}
	n.keys, n.items = append(n.keys, key), append(n.items, value)
}

// fallback is what a merge brings: what stands in the map itself wins.
func (n *node) fallback(key string, value *node) {
	for _, k := range n.keys {
		if k == key {
			return
		}
	}
	n.keys, n.items = append(n.keys, key), append(n.items, value)
}

// parseJSON reads one value.
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

// fold is a key without its way of writing: retryPolicy and retry_policy are the same.
func fold(key string) string { return strings.ToLower(strings.ReplaceAll(key, "_", "")) }

// get is the value of a key, which is used with that; nil where there is none, or null.
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

// str is a scalar as text, "" for all else.
func (n *node) str() string {
	if n == nil || n.kind != 's' {
		return ""
	}
	return n.text
}

// is whether a value is true.
func (n *node) is() bool { return n.str() == "true" }

// list is a list, or the one value in place of it.
func (n *node) list() []*node {
	switch {
	case n == nil:
		return nil
	case n.kind == 'l':
		return n.items
	}
	return []*node{n}
}

// rest are the keys that nobody asked for, with their values in a line.
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

// short is a value in one line.
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
