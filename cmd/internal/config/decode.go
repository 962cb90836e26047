package config

import (
	"cmp"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"rouse/watcher"
)

// maxProblems bounds what is collected of a file that is something else.
const maxProblems = 1000

// decoder fills settings from a tree and collects what is wrong.
type decoder struct {
	LoadOptions
	problems []Problem
	wrong    map[string]bool // the paths of problems
	secrets  []string
	unset    []string    // names of secrets that are kept nowhere
	refs     []SecretRef // to the store
	held     []Held
	root     *node                    // of the main file; nil if it cannot be read
	presets  map[preset]reflect.Value // defaults that were read once
	overlay  bool                     // inside defaults: nothing is required there
	trusted  []trusted                // files that were read for the configuration
	globs    []trusted                // patterns of its includes
}

func newDecoder(getenv func(string) string) *decoder {
	return &decoder{LoadOptions: LoadOptions{Getenv: getenv}, wrong: map[string]bool{}, presets: map[preset]reflect.Value{}}
}

func (d *decoder) problem(at Position, path, format string, args ...any) *Problem {
	if len(d.problems) > maxProblems {
		return &Problem{} // nobody reads on
	}
	d.wrong[path] = true
	d.problems = append(d.problems, Problem{File: at.File, Line: at.Line, Column: at.Column, Path: path, Message: fmt.Sprintf(format, args...)})
	return &d.problems[len(d.problems)-1]
}

// place is where the value of a path stands, or the nearest above it that was written.
func (d *decoder) place(path string) Position {
	if d.root == nil {
		return Position{}
	}
	nearest, _ := d.root.find(path)
	return nearest.at
}

// given reports whether a path was written.
func (d *decoder) given(path string) bool {
	if d.root == nil {
		return false
	}
	_, whole := d.root.find(path)
	return whole
}

func (d *decoder) structure(n *node, path string, v reflect.Value) {
	if n.kind != mapping {
		d.problem(n.at, path, "must be a mapping of keys, not %s", n).Hint = "write " + d.structureShape(n, path, v.Type())
		return
	}

	// Jobs, agents and models know their place, for messages long after the decoder is gone.
	if at := v.FieldByName("At"); at.IsValid() {
		at.Set(reflect.ValueOf(n.at))
	}

	fields := fieldsOf(v.Type())
	for _, e := range n.entries {
		i := slices.IndexFunc(fields, func(f field) bool { return f.key == e.key })
		if i < 0 {
			d.unknown(e, path, fields)
			continue
		}
		d.setting(fields[i], e, join(path, e.key), v.Field(fields[i].index))
	}

	for _, f := range fields {
		if f.need && n.child(f.key) == nil && !d.overlay {
			d.problem(n.at, path, "the key %q is missing", f.key)
		}
	}
}

func (d *decoder) unknown(e entry, path string, fields []field) {
	p := d.problem(e.at, path, "unknown key %q", short(e.key))
	if len(d.problems) > maxProblems {
		return // the hint is not shown
	}
	if p.Hint = unknownKey(e, path, keysOf(fields)); p.Hint == "" {
		p.Hint = "the keys here are " + strings.Join(keysOf(fields), ", ")
	}
}

// setting fills one field.
func (d *decoder) setting(f field, e entry, path string, v reflect.Value) {
	// Saved, since mappings nest: leaving an inner one must not end defaults.
	outer := d.overlay
	d.overlay = outer || f.key == "defaults"
	d.value(e.value, path, v, f)
	d.overlay = outer
}

func (d *decoder) value(n *node, path string, v reflect.Value, f field) {
	if v.Type() == reflect.TypeFor[After]() {
		d.after(n, path, v)
		return
	}

	if short := shortForm(v.Type()); short != "" && n.kind == scalar {
		d.value(n, path, v.FieldByName(short), field{})
		if at := v.FieldByName("At"); at.IsValid() {
			at.Set(reflect.ValueOf(n.at))
		}
		return
	}

	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		d.value(n, path, v.Elem(), f)
	case reflect.Struct:
		d.structure(n, path, v)
	case reflect.Slice:
		d.list(n, path, v, f)
	case reflect.Map:
		d.mapping(n, path, v, f)
	case reflect.Interface:
		if free := d.free(n, path); free != nil {
			v.Set(reflect.ValueOf(free))
		}
	default:
		d.scalar(n, path, v, f)
	}
}

func (d *decoder) list(n *node, path string, v reflect.Value, f field) {
	items := n.items
	if n.kind != list {
		if n.kind == mapping || n.null() || !oneWillDo(v.Type().Elem()) {
			d.problem(n.at, path, "must be a list, not %s", n).Hint = "write " + d.listShape(n, path, v.Type(), f)
			return
		}
		items = []*node{n}
	}

	v.Set(reflect.MakeSlice(v.Type(), len(items), len(items)))
	for i, item := range items {
		d.value(item, itemOf(path, i), v.Index(i), f)
	}
}

// oneWillDo reports whether a single item may stand where a list of its type is expected.
func oneWillDo(item reflect.Type) bool {
	return item.Kind() == reflect.String || item.Kind() == reflect.Int || shortForm(item) != ""
}

// shortForm is the field of a mapping that a plain text may stand for, as X does for {path: X}; "" where none may.
func shortForm(t reflect.Type) string {
	switch t {
	case reflect.TypeFor[readGrant](), reflect.TypeFor[loginGrant]():
		return "Path"
	case reflect.TypeFor[follow]():
		return "Job"
	}
	return ""
}

func (d *decoder) mapping(n *node, path string, v reflect.Value, f field) {
	if n.kind != mapping {
		if n.kind == scalar && !n.null() && isSecretMap(path+".") {
			d.secret(n.at, path, n.text)
		}
		d.problem(n.at, path, "must be a mapping of keys, not %s", n).Hint = "write " + lastKey(path) + ": " + cmp.Or(f.eg, "{NAME: VALUE}")
		return
	}

	v.Set(reflect.MakeMap(v.Type()))
	for _, e := range n.entries {
		item := reflect.New(v.Type().Elem()).Elem()
		d.value(e.value, join(path, e.key), item, field{secret: secretHeader.MatchString(e.key)})
		v.SetMapIndex(reflect.ValueOf(e.key), item)
	}
}

// free is a value of any shape: the arguments of a playbook call.
func (d *decoder) free(n *node, path string) any {
	switch n.kind {
	case mapping:
		out := map[string]any{}
		for _, e := range n.entries {
			out[e.key] = d.free(e.value, join(path, e.key))
		}
		return out
	case list:
		out := make([]any, len(n.items))
		for i, item := range n.items {
			out[i] = d.free(item, itemOf(path, i))
		}
		return out
	}

	// Tools get dates as text, as they were written: JSON has no other form for them.
	if n.tag == "!!str" || n.tag == "!!timestamp" || n.tag == "!!merge" {
		d.cutText(n, path)
		text, _ := d.expand(n, path, false)
		return text
	}

	var v any
	if err := (&yaml.Node{Kind: yaml.ScalarNode, Tag: n.tag, Value: n.text}).Decode(&v); err != nil {
		d.problem(n.at, path, "%s is not understood; quote it if it is a text", n)
	}

	// YAML has .inf and .nan; JSON, in which arguments are recorded, does not.
	if x, ok := v.(float64); ok && (math.IsInf(x, 0) || math.IsNaN(x)) {
		d.problem(n.at, path, "%s cannot be given to a tool", n)
	}

	return v
}

// after reads leave, delete, or {move: FOLDER}.
func (d *decoder) after(n *node, path string, v reflect.Value) {
	switch {
	case n.kind == scalar && (n.text == "leave" || n.text == "delete"):
		v.Set(reflect.ValueOf(After{Action: n.text}))
	case n.kind == mapping && len(n.entries) == 1 && n.entries[0].key == "move":
		to := n.entries[0].value
		var dir Path
		before, template, err := watcher.SplitTemplate(to.text)
		if err != nil {
			d.problem(to.at, join(path, "move"), "%s", err)
			return
		}
		if template == "" {
			before = to.text
		}
		cut := *to
		cut.text = before
		d.value(&cut, join(path, "move"), reflect.ValueOf(&dir).Elem(), field{})
		v.Set(reflect.ValueOf(After{"move", string(dir), template}))
	default:
		d.problem(n.at, path, "must be leave, delete, or {move: FOLDER}, not %s", n)
	}
}

// preset gives what was left out its default.
func (d *decoder) preset(v reflect.Value) {
	switch v.Kind() {
	case reflect.Slice:
		for i := range v.Len() {
			d.preset(v.Index(i))
		}
	case reflect.Pointer:
		if !v.IsNil() {
			d.preset(v.Elem())
		}
	case reflect.Struct:
		for _, f := range fieldsOf(v.Type()) {
			inner := v.Field(f.index)
			// A setting whose zero has a meaning is a pointer, or refuses the zero (positive).
			if f.preset != "" && inner.IsZero() {
				d.presetField(f, inner)
			} else {
				d.preset(inner)
			}
		}
	}
}

// preset is a default: the text of a tag, for a type.
type preset struct {
	of   reflect.Type
	text string
}

// presetField fills in a default. Each place has a copy of its own.
func (d *decoder) presetField(f field, v reflect.Value) {
	key := preset{v.Type(), f.preset}
	known, ok := d.presets[key]
	if !ok {
		known = reflect.New(v.Type()).Elem()
		d.readPreset(f, known)
		d.presets[key] = known
	}

	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		v.Elem().Set(known.Elem())
	case reflect.Slice:
		v.Set(reflect.AppendSlice(reflect.MakeSlice(v.Type(), 0, known.Len()), known))
	default:
		v.Set(known)
	}
}

// readPreset reads a default as if it had been written, but nowhere.
func (d *decoder) readPreset(f field, v reflect.Value) {
	at := Position{File: "the defaults"}
	n := word(f.preset, at)
	if inner, ok := strings.CutPrefix(f.preset, "["); ok {
		n = wordList(strings.Split(strings.TrimSuffix(inner, "]"), ", "))
	}

	// A decoder of its own: a default must not count as given.
	quiet := newDecoder(d.Getenv)
	quiet.value(n, f.key, v, f)
	d.problems = append(d.problems, quiet.problems...)
}
