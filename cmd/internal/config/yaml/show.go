package yaml

import (
	"fmt"
	"reflect"
	"slices"

	"go.yaml.in/yaml/v4"

	"rouse/agent/redact"
	"rouse/cmd/internal/config"
)

// masked replaces a secret.
const masked = "********"

// Show returns the effective settings as a configuration, with defaults marked and secrets masked.
func Show(c *config.Config) ([]byte, error) {
	s := shower{newDecoder(func(string) string { return "" }), redact.Masked(masked, c.Secrets.Values)}
	out, err := yaml.Dump(s.node(reflect.ValueOf(c).Elem()), yaml.WithIndent(2), yaml.WithLineWidth(-1))
	if err != nil {
		return nil, fmt.Errorf("the configuration cannot be printed: %w", err)
	}
	return out, nil
}

// shower converts settings to YAML.
type shower struct {
	presets *decoder
	secrets *redact.Redactor
}

func (s *shower) node(v reflect.Value) *yaml.Node {
	switch x := v.Interface().(type) {
	case config.After:
		if x.Action == "move" {
			return pairs(s.text("move"), s.text(x.To()))
		}
		return s.text(x.Action)
	case config.Duration:
		return s.text(x.String())
	case config.Size:
		return s.text(x.String())
	}

	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Value: "null"}
		}
		return s.node(v.Elem())
	case reflect.Struct:
		n := pairs()
		for _, f := range config.Fields(v.Type()) {
			s.field(n, f, v.Field(f.Index))
		}
		return n
	case reflect.Map:
		n := pairs()
		for _, key := range sortedKeys(v) {
			n.Content = append(n.Content, plainText(key), s.node(v.MapIndex(reflect.ValueOf(key))))
		}
		return n
	case reflect.Slice:
		n := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
		for i := range v.Len() {
			n.Content = append(n.Content, s.node(v.Index(i)))
		}
		return n
	case reflect.String:
		return s.text(v.String())
	}

	n := &yaml.Node{}
	if err := n.Encode(v.Interface()); err != nil {
		return plainText(fmt.Sprint(v.Interface()))
	}

	return n
}

// field adds a setting that has a value, and marks a default.
func (s *shower) field(into *yaml.Node, f config.Field, v reflect.Value) {
	if v.IsZero() && v.Kind() != reflect.Struct {
		return
	}

	value := s.node(v)
	if value.Kind == yaml.MappingNode && len(value.Content) == 0 {
		return
	}

	if f.Default != "" {
		preset := reflect.New(v.Type()).Elem()
		s.presets.presetField(f, preset)
		if reflect.DeepEqual(preset.Interface(), v.Interface()) {
			value.LineComment = "default"
			if value.Kind == yaml.SequenceNode {
				value.Style = yaml.FlowStyle
			}
		}
	}

	into.Content = append(into.Content, plainText(f.Key), value)
}

func sortedKeys(m reflect.Value) []string {
	keys := make([]string, 0, m.Len())
	for _, key := range m.MapKeys() {
		keys = append(keys, key.String())
	}
	slices.Sort(keys)
	return keys
}

func pairs(content ...*yaml.Node) *yaml.Node {
	return &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Content: content}
}

// text masks secrets and escapes ${.
func (s *shower) text(plain string) *yaml.Node {
	return plainText(escape(s.secrets.Replace(plain)))
}

// escape escapes a text so that expand returns it unchanged.
func escape(text string) string {
	return reference.ReplaceAllStringFunc(text, func(m string) string { return "$" + m })
}

func plainText(s string) *yaml.Node { return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: s} }
