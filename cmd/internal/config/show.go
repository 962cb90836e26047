package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"rouse/agent/redact"
)

// masked stands where a secret was.
const masked = "********"

// Show returns the effective settings as a configuration, with defaults marked and secrets masked.
func (c *Config) Show() ([]byte, error) {
	s := shower{newDecoder(func(string) string { return "" }), redact.Masked(masked, c.secrets)}
	out, err := yaml.Dump(s.node(reflect.ValueOf(c).Elem()), yaml.WithIndent(2), yaml.WithLineWidth(-1))
	if err != nil {
		return nil, fmt.Errorf("the configuration cannot be printed: %w", err)
	}
	return out, nil
}

// shower makes YAML of settings.
type shower struct {
	presets *decoder
	secrets *redact.Redactor
}

func (s *shower) node(v reflect.Value) *yaml.Node {
	switch x := v.Interface().(type) {
	case After:
		if x.Action == "move" {
			return pairs(s.text("move"), s.text(x.To()))
		}
		return s.text(x.Action)
	case Duration:
		return s.text(x.String())
	case Size:
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
		for _, f := range fieldsOf(v.Type()) {
			s.field(n, f, v.Field(f.index))
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

// field adds a setting that has a value, and says whether that is the default.
func (s *shower) field(into *yaml.Node, f field, v reflect.Value) {
	if v.IsZero() && v.Kind() != reflect.Struct {
		return
	}

	value := s.node(v)
	if value.Kind == yaml.MappingNode && len(value.Content) == 0 {
		return
	}

	if f.preset != "" {
		preset := reflect.New(v.Type()).Elem()
		s.presets.presetField(f, preset)
		if reflect.DeepEqual(preset.Interface(), v.Interface()) {
			value.LineComment = "default"
			if value.Kind == yaml.SequenceNode {
				value.Style = yaml.FlowStyle
			}
		}
	}

	into.Content = append(into.Content, plainText(f.key), value)
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

// text hides secrets, and writes ${ so that it is read as itself.
func (s *shower) text(plain string) *yaml.Node {
	return plainText(escape(s.secrets.Replace(plain)))
}

// escape writes a text so that expand gives it back.
func escape(text string) string {
	return reference.ReplaceAllStringFunc(text, func(m string) string { return "$" + m })
}

func plainText(s string) *yaml.Node { return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: s} }

// Changes are what one configuration says otherwise than the one before it.
type Changes struct {
	Added, Changed, Removed []string // jobs
	// Others are the agents, models, channels and settings that are new, gone or different.
	Others []string
}

// Compare lists what is different. Where something stands in the files does not matter.
func Compare(before, after *Config) Changes {
	var c Changes
	old, is := reflect.ValueOf(before).Elem(), reflect.ValueOf(after).Elem()
	for _, f := range fieldsOf(old.Type()) {
		a, b := old.Field(f.index), is.Field(f.index)
		if !named(a.Type()) {
			if !same(a, b) {
				c.Others = append(c.Others, f.key)
			}
			continue
		}

		added, changed, removed := compareLists(a, b)
		if f.key == "jobs" {
			c.Added, c.Changed, c.Removed = added, changed, removed
			continue
		}

		for _, name := range slices.Concat(added, changed, removed) {
			c.Others = append(c.Others, strings.TrimSuffix(f.key, "s")+" "+name)
		}
	}

	c.Others = append(c.Others, compareSkills(before, after)...)
	// Values of granted secrets stand in no exported field, so nothing above has shown them.
	if c.Empty() && !slices.Equal(before.secrets, after.secrets) {
		c.Others = append(c.Others, "the value of a secret")
	}

	return c
}

// Empty reports that both mean the same.
func (c Changes) Empty() bool {
	return len(c.Added)+len(c.Changed)+len(c.Removed)+len(c.Others) == 0
}

// named reports whether a setting is a list of things with names.
func named(t reflect.Type) bool {
	if t.Kind() != reflect.Slice || t.Elem().Kind() != reflect.Struct {
		return false
	}
	_, ok := t.Elem().FieldByName("Name")
	return ok
}

func compareLists(before, after reflect.Value) (added, changed, removed []string) {
	old := map[string]reflect.Value{}
	for i := range before.Len() {
		old[before.Index(i).FieldByName("Name").String()] = before.Index(i)
	}

	for i := range after.Len() {
		name := after.Index(i).FieldByName("Name").String()
		was, ok := old[name]
		delete(old, name)

		switch {
		case !ok:
			added = append(added, name)
		case !same(was, after.Index(i)):
			changed = append(changed, name)
		}
	}

	for i := range before.Len() {
		if name := before.Index(i).FieldByName("Name").String(); old[name].IsValid() {
			removed = append(removed, name)
		}
	}

	return added, changed, removed
}

// same reports whether two settings are equal except for positions and unexported results, such as
// the value of a granted secret.
func same(a, b reflect.Value) bool {
	x, errX := json.Marshal(a.Interface())
	y, errY := json.Marshal(b.Interface())
	return errX == nil && errY == nil && bytes.Equal(x, y)
}
