package config

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v4"
)

// Show prints the settings as they take effect: defaults filled in as comments, secrets
// masked.
func (c *Config) Show() ([]byte, error) {
	n := c.node(reflect.ValueOf(c).Elem())
	var out bytes.Buffer
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	if err := enc.Encode(n); err != nil {
		return nil, fmt.Errorf("the configuration cannot be printed: %w", err)
	}
	return out.Bytes(), enc.Close()
}

func (c *Config) node(v reflect.Value) *yaml.Node {
	if v.Type() == reflect.TypeFor[After]() {
		a, _ := v.Interface().(After)
		if a.Action != "move" {
			return text(orLeave(a.Action))
		}
		return &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Content: []*yaml.Node{text("move"), text(a.Dir)}}
	}
	if s, ok := v.Interface().(fmt.Stringer); ok && v.Kind() != reflect.Pointer {
		return text(s.String())
	}
	switch v.Kind() {
	case reflect.Pointer:
		return c.node(v.Elem())
	case reflect.Struct:
		n := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
		for _, f := range fieldsOf(v.Type()) {
			c.field(n, f, v.Field(f.index))
		}
		return n
	case reflect.Slice:
		n := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
		for i := range v.Len() {
			n.Content = append(n.Content, c.node(v.Index(i)))
		}
		return n
	}
	n := &yaml.Node{}
	value := v.Interface()
	if v.Kind() == reflect.String {
		value = c.mask(v.String())
	}
	if err := n.Encode(value); err != nil {
		return text(fmt.Sprint(value))
	}
	return n
}

// field adds a setting; one that is not given shows its default, if it has one.
func (c *Config) field(into *yaml.Node, f field, v reflect.Value) {
	empty := v.IsZero() || (v.Kind() == reflect.Slice && v.Len() == 0)
	value := &yaml.Node{}
	switch {
	case !empty:
		value = c.node(v)
		if value.Kind == yaml.MappingNode && len(value.Content) == 0 {
			return
		}
	case f.unset != "" && f.later == "":
		if err := yaml.Unmarshal([]byte(f.unset), value); err != nil || len(value.Content) != 1 {
			value = text(f.unset)
		} else {
			value = value.Content[0]
		}
		value.LineComment = "default"
	case v.Kind() == reflect.Struct && f.later == "" && v.Type() != reflect.TypeFor[After]():
		if value = c.node(v); len(value.Content) == 0 {
			return
		}
	default:
		return
	}
	into.Content = append(into.Content, text(f.key), value)
}

func orLeave(action string) string {
	if action == "" {
		return "leave"
	}
	return action
}

func text(s string) *yaml.Node { return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: s} }

// mask hides what came from a secret.
func (c *Config) mask(s string) string {
	for _, secret := range c.secrets {
		if secret != "" {
			s = strings.ReplaceAll(s, secret, "********")
		}
	}
	return s
}
