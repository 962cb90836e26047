package config

import (
	"fmt"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

// decoder fills settings from a YAML tree and collects what is wrong.
type decoder struct {
	getenv   func(string) string
	problems []Problem
	secrets  []string
	files    map[*yaml.Node]string // of values that come from another file than the current
	file     string                // the one that is being read
	overlay  bool                  // inside defaults: nothing is required there
}

func (d *decoder) problem(n *yaml.Node, path, format string, args ...any) *Problem {
	p := Problem{File: d.fileOf(n), Path: path, Message: fmt.Sprintf(format, args...)}
	if n != nil {
		p.Line, p.Column = n.Line, n.Column
	}
	d.problems = append(d.problems, p)
	return &d.problems[len(d.problems)-1]
}

func (d *decoder) fileOf(n *yaml.Node) string {
	if f, ok := d.files[n]; ok {
		return f
	}
	return d.file
}

// field is a setting of a struct type, as its tags describe it.
type field struct {
	index                        int
	key, enum, later, unset, say string
	need                         bool
}

func fieldsOf(t reflect.Type) []field {
	var out []field
	for i := range t.NumField() {
		tag := t.Field(i).Tag
		if key := tag.Get("key"); key != "" {
			out = append(out, field{i, key, tag.Get("enum"), tag.Get("later"), tag.Get("unset"), tag.Get("say"), tag.Get("need") != ""})
		}
	}
	return out
}

// follow resolves an alias.
func follow(n *yaml.Node) *yaml.Node {
	for range 100 {
		if n == nil || n.Kind != yaml.AliasNode {
			return n
		}
		n = n.Alias
	}
	return n
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// structure fills a struct from a mapping.
func (d *decoder) structure(n *yaml.Node, path string, v reflect.Value) {
	if n.Kind != yaml.MappingNode {
		d.problem(n, path, "must be a mapping of keys, not %s", kindName(n))
		return
	}
	fields := fieldsOf(v.Type())
	if at := v.FieldByName("At"); at.IsValid() && at.Type() == reflect.TypeFor[Position]() {
		at.Set(reflect.ValueOf(Position{d.fileOf(n), n.Line, n.Column}))
	}
	seen := map[string]*yaml.Node{}
	for _, pair := range pairs(n) {
		key, value := pair[0], pair[1]
		if key.Value == "<<" && key.Tag == "!!merge" {
			d.problem(key, path, "merge keys are not supported; use defaults:")
			continue
		}
		if first, twice := seen[key.Value]; twice {
			d.problem(key, join(path, key.Value), "is given twice, first in line %d", first.Line)
			continue
		}
		seen[key.Value] = key
		i := slices.IndexFunc(fields, func(f field) bool { return f.key == key.Value })
		if i < 0 {
			var known []string
			for _, f := range fields {
				known = append(known, f.key)
			}
			p := d.problem(key, path, "unknown key %q", key.Value)
			if p.Hint = nearest(key.Value, known); p.Hint == "" {
				p.Hint = "the keys here are " + strings.Join(known, ", ")
			}
			continue
		}
		d.setting(fields[i], key, value, join(path, key.Value), v.Field(fields[i].index))
	}
	for _, f := range fields {
		if f.need && seen[f.key] == nil && !d.overlay {
			d.problem(n, path, "the key %q is missing", f.key)
		}
	}
}

func pairs(n *yaml.Node) [][2]*yaml.Node {
	var out [][2]*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		out = append(out, [2]*yaml.Node{n.Content[i], n.Content[i+1]})
	}
	return out
}

// setting fills one field, and refuses what comes later.
func (d *decoder) setting(f field, key, value *yaml.Node, path string, v reflect.Value) {
	before := len(d.problems)
	overlay := d.overlay
	d.overlay = overlay || f.key == "defaults"
	d.value(value, path, v, f.enum)
	d.overlay = overlay
	harmless := v.Kind() == reflect.Bool && !v.Bool() // asking for what there is not
	if f.later != "" && len(d.problems) == before && !harmless {
		d.problem(key, path, "not available in this version (%s)", f.later)
	}
}

func kindName(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	case yaml.ScalarNode:
		if n.Tag == "!!null" {
			return "nothing"
		}
		return strconv.Quote(short(n.Value))
	}
	return "this"
}

func short(s string) string {
	if r := []rune(s); len(r) > 40 {
		return string(r[:40]) + "…"
	}
	return s
}

// value fills anything.
func (d *decoder) value(n *yaml.Node, path string, v reflect.Value, enum string) {
	alias := n
	if n = follow(n); n != alias {
		if f, ok := d.files[alias]; ok {
			d.files[n] = f
		}
	}
	if v.Type() == reflect.TypeFor[After]() {
		d.after(n, path, v)
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		inner := reflect.New(v.Type().Elem())
		d.value(n, path, inner.Elem(), enum)
		v.Set(inner)
	case reflect.Struct:
		d.structure(n, path, v)
	case reflect.Slice:
		d.list(n, path, v, enum)
	case reflect.Map:
		d.mapping(n, path, v)
	case reflect.Interface:
		v.Set(reflect.ValueOf(d.free(n, path)))
	default:
		d.scalar(n, path, v, enum)
	}
}

func (d *decoder) list(n *yaml.Node, path string, v reflect.Value, enum string) {
	items := n.Content
	if n.Kind != yaml.SequenceNode {
		if n.Kind != yaml.ScalarNode || v.Type().Elem().Kind() != reflect.String || n.Tag == "!!null" {
			d.problem(n, path, "must be a list, not %s", kindName(n))
			return
		}
		items = []*yaml.Node{n} // a single word where a list of words is expected
	}
	out := reflect.MakeSlice(v.Type(), len(items), len(items))
	for i, item := range items {
		d.value(item, fmt.Sprintf("%s[%d]", path, i), out.Index(i), enum)
	}
	v.Set(out)
}

func (d *decoder) mapping(n *yaml.Node, path string, v reflect.Value) {
	if n.Kind != yaml.MappingNode {
		d.problem(n, path, "must be a mapping of keys, not %s", kindName(n))
		return
	}
	out := reflect.MakeMap(v.Type())
	for _, pair := range pairs(n) {
		item := reflect.New(v.Type().Elem()).Elem()
		if out.MapIndex(reflect.ValueOf(pair[0].Value)).IsValid() {
			d.problem(pair[0], join(path, pair[0].Value), "is given twice")
		}
		d.value(pair[1], join(path, pair[0].Value), item, "")
		out.SetMapIndex(reflect.ValueOf(pair[0].Value), item)
	}
	v.Set(out)
}

// free is a value of any shape: the arguments of a playbook call.
func (d *decoder) free(n *yaml.Node, path string) any {
	n = follow(n)
	switch n.Kind {
	case yaml.MappingNode:
		out := map[string]any{}
		for _, pair := range pairs(n) {
			out[pair[0].Value] = d.free(pair[1], join(path, pair[0].Value))
		}
		return out
	case yaml.SequenceNode:
		out := make([]any, len(n.Content))
		for i, item := range n.Content {
			out[i] = d.free(item, fmt.Sprintf("%s[%d]", path, i))
		}
		return out
	}
	if n.Tag == "!!str" {
		return d.expand(n, path)
	}
	var v any
	if err := n.Decode(&v); err != nil {
		d.problem(n, path, "is not understood: %v", err)
	}
	return v
}

var variable = regexp.MustCompile(`\$?\$\{([^}]*)\}`)

var secretKey = regexp.MustCompile(`(?i)(key|secret|token|password|url)[^.\]]*$`)

// expand replaces ${NAME} by the environment; $${ is a plain ${.
func (d *decoder) expand(n *yaml.Node, path string) string {
	return variable.ReplaceAllStringFunc(n.Value, func(m string) string {
		if strings.HasPrefix(m, "$$") {
			return m[1:]
		}
		name := m[2 : len(m)-1]
		value := d.getenv(name)
		if value == "" {
			d.problem(n, path, "the environment variable %q is not set", name)
			return ""
		}
		if secretKey.MatchString(path) {
			d.secrets = append(d.secrets, value)
		}
		return value
	})
}

func (d *decoder) scalar(n *yaml.Node, path string, v reflect.Value, enum string) {
	if n.Kind != yaml.ScalarNode || n.Tag == "!!null" {
		d.problem(n, path, "must be %s, not %s", typeName(v.Type()), kindName(n))
		return
	}
	text := d.expand(n, path)
	if strings.HasPrefix(text, "secret:") {
		d.problem(n, path, "secret: is not available in this version; take the value from the environment with ${NAME}")
		return
	}
	if err := d.parse(n, text, v); err != nil {
		d.problem(n, path, "%s", err.Error())
		return
	}
	if enum != "" {
		d.oneOf(n, path, text, enum)
	}
}

func (d *decoder) oneOf(n *yaml.Node, path, text, enum string) {
	var known []string
	for value := range strings.SplitSeq(enum, "|") {
		word, later := strings.CutSuffix(value, "*")
		if text == word {
			if later {
				d.problem(n, path, "%q is not available in this version", text)
			}
			return
		}
		known = append(known, word)
	}
	p := d.problem(n, path, "%q is none of %s", text, strings.Join(known, ", "))
	p.Hint = nearest(text, known)
}

func typeName(t reflect.Type) string {
	switch t {
	case reflect.TypeFor[Duration]():
		return "a length of time"
	case reflect.TypeFor[Size]():
		return "a size"
	case reflect.TypeFor[Path]():
		return "a path"
	}
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int64:
		return "a whole number"
	case reflect.Float64:
		return "a number"
	}
	return "a text"
}

// parse sets a scalar from its text.
func (d *decoder) parse(n *yaml.Node, text string, v reflect.Value) error {
	switch v.Type() {
	case reflect.TypeFor[Duration]():
		t, err := ParseDuration(text)
		v.SetInt(int64(t))
		return err
	case reflect.TypeFor[Size]():
		s, err := parseSize(text)
		v.SetInt(int64(s))
		return err
	case reflect.TypeFor[Path]():
		if text == "" {
			return fmt.Errorf("is empty")
		}
		v.SetString(d.resolve(n, text))
		return nil
	case reflect.TypeFor[Name]():
		v.SetString(text)
		if !nameForm.MatchString(text) {
			return fmt.Errorf("%q cannot be a name: letters, digits, _ and - are allowed, up to 63, beginning with a letter or digit", text)
		}
		return nil
	}
	switch v.Kind() {
	case reflect.Bool:
		if text != "true" && text != "false" {
			return fmt.Errorf("must be true or false, not %q", text)
		}
		v.SetBool(text == "true")
	case reflect.Int, reflect.Int64:
		i, err := strconv.ParseInt(text, 10, 64)
		if err != nil || i < 0 {
			return fmt.Errorf("must be a whole number from 0 on, not %q", text)
		}
		v.SetInt(i)
	case reflect.Float64:
		f, err := strconv.ParseFloat(text, 64)
		if err != nil || f < 0 || f != f {
			return fmt.Errorf("must be a number from 0 on, not %q", text)
		}
		v.SetFloat(f)
	default:
		v.SetString(text)
	}
	return nil
}

// resolve takes a relative path from the folder of its file.
func (d *decoder) resolve(n *yaml.Node, text string) string {
	if rest, ok := strings.CutPrefix(text, "~/"); ok {
		if home, err := userHome(d.getenv); err == nil {
			return filepath.Join(home, rest)
		}
	}
	if filepath.IsAbs(text) {
		return filepath.Clean(text)
	}
	return filepath.Join(filepath.Dir(d.fileOf(n)), text)
}

// after reads leave, delete, or {move: FOLDER}.
func (d *decoder) after(n *yaml.Node, path string, v reflect.Value) {
	a := After{}
	switch {
	case n.Kind == yaml.ScalarNode && (n.Value == "leave" || n.Value == "delete"):
		a.Action = n.Value
	case n.Kind == yaml.MappingNode && len(n.Content) == 2 && n.Content[0].Value == "move":
		var dir Path
		d.value(n.Content[1], join(path, "move"), reflect.ValueOf(&dir).Elem(), "")
		a = After{"move", string(dir)}
	default:
		d.problem(n, path, "must be leave, delete, or {move: FOLDER}, not %s", kindName(n))
	}
	v.Set(reflect.ValueOf(a))
}
