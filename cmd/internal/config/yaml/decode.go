package yaml

import (
	"cmp"
	"math"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"rouse/cmd/internal/config"
	"rouse/watcher/after"
)

// decoder fills the settings of a document from its tree.
type decoder struct {
	*Document
	presets map[preset]reflect.Value // parsed defaults
	overlay bool                     // inside defaults, where no key is required
}

func newDecoder(getenv func(string) string) *decoder {
	d := &Document{Options: Options{Getenv: getenv}, Config: &config.Config{}, wrong: map[string]bool{}}
	return &decoder{Document: d, presets: map[preset]reflect.Value{}}
}

func (d *decoder) structure(n *node, path string, v reflect.Value) {
	if n.kind != mapping {
		d.Problem(n.at, path, "must be a mapping of keys, not %s", n).Hint = "write " + d.structureShape(n, path, v.Type())
		return
	}

	// Jobs, agents and models store their position for messages after decoding.
	if at := v.FieldByName("At"); at.IsValid() {
		at.Set(reflect.ValueOf(n.at))
	}

	fields := config.Fields(v.Type())
	for _, e := range n.entries {
		i := slices.IndexFunc(fields, func(f config.Field) bool { return f.Key == e.key })
		if i < 0 {
			d.unknown(e, path, fields)
			continue
		}
		d.setting(fields[i], e, config.Join(path, e.key), v.Field(fields[i].Index))
	}

	for _, f := range fields {
		if f.Required && n.child(f.Key) == nil && !d.overlay {
			d.Problem(n.at, path, "the key %q is missing", f.Key)
		}
	}
}

func (d *decoder) unknown(e entry, path string, fields []config.Field) {
	p := d.Problem(e.at, path, "unknown key %q", config.Short(e.key))
	if len(d.problems) > maxProblems {
		return // the hint would not be shown
	}
	if p.Hint = unknownKey(e, path, config.Keys(fields)); p.Hint == "" {
		p.Hint = "the keys here are " + strings.Join(config.Keys(fields), ", ")
	}
}

// setting decodes one field.
func (d *decoder) setting(f config.Field, e entry, path string, v reflect.Value) {
	// Restore the old value, because mappings nest: leaving an inner one must not end defaults.
	outer := d.overlay
	d.overlay = outer || f.Key == "defaults"
	d.value(e.value, path, v, f)
	d.overlay = outer
}

func (d *decoder) value(n *node, path string, v reflect.Value, f config.Field) {
	if v.Type() == reflect.TypeFor[config.After]() {
		d.after(n, path, v)
		return
	}

	if short := shortForm(v.Type()); short != "" && n.kind == scalar {
		d.value(n, path, v.FieldByName(short), config.Field{})
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

func (d *decoder) list(n *node, path string, v reflect.Value, f config.Field) {
	items := n.items
	if n.kind != list {
		if n.kind == mapping || n.null() || !oneWillDo(v.Type().Elem()) {
			d.Problem(n.at, path, "must be a list, not %s", n).Hint = "write " + d.listShape(n, path, v.Type(), f)
			return
		}
		items = []*node{n}
	}

	v.Set(reflect.MakeSlice(v.Type(), len(items), len(items)))
	for i, item := range items {
		d.value(item, config.ItemOf(path, i), v.Index(i), f)
	}
}

// oneWillDo reports whether a single item may replace a list of its type.
func oneWillDo(item reflect.Type) bool {
	return item.Kind() == reflect.String || item.Kind() == reflect.Int || shortForm(item) != ""
}

// shortForm returns the field that a plain text may stand for, as X does for {path: X}. It returns
// "" if the type has no short form.
func shortForm(t reflect.Type) string {
	switch t {
	case reflect.TypeFor[config.ReadGrant](), reflect.TypeFor[config.LoginGrant]():
		return "Path"
	case reflect.TypeFor[config.Followed]():
		return "Job"
	}
	return ""
}

func (d *decoder) mapping(n *node, path string, v reflect.Value, f config.Field) {
	if n.kind != mapping {
		if n.kind == scalar && !n.null() && isSecretMap(path+".") {
			d.secret(n.at, path, n.text)
		}
		d.Problem(n.at, path, "must be a mapping of keys, not %s", n).Hint = "write " + LastKey(path) + ": " + cmp.Or(f.Example, "{NAME: VALUE}")
		return
	}

	v.Set(reflect.MakeMap(v.Type()))
	for _, e := range n.entries {
		item := reflect.New(v.Type().Elem()).Elem()
		d.value(e.value, config.Join(path, e.key), item, config.Field{Secret: secretHeader.MatchString(e.key)})
		v.SetMapIndex(reflect.ValueOf(e.key), item)
	}
}

// free decodes a value of any shape, such as the arguments of a playbook call.
func (d *decoder) free(n *node, path string) any {
	switch n.kind {
	case mapping:
		out := map[string]any{}
		for _, e := range n.entries {
			out[e.key] = d.free(e.value, config.Join(path, e.key))
		}
		return out
	case list:
		out := make([]any, len(n.items))
		for i, item := range n.items {
			out[i] = d.free(item, config.ItemOf(path, i))
		}
		return out
	}

	// Tools get dates as written, because JSON has no type for them.
	if n.tag == "!!str" || n.tag == "!!timestamp" || n.tag == "!!merge" {
		d.cutText(n, path)
		text, _ := d.expand(n, path, false)
		return text
	}

	var v any
	if err := (&yaml.Node{Kind: yaml.ScalarNode, Tag: n.tag, Value: n.text}).Decode(&v); err != nil {
		d.Problem(n.at, path, "%s is not understood; quote it if it is a text", n)
	}

	// YAML has .inf and .nan, but arguments are recorded as JSON.
	if x, ok := v.(float64); ok && (math.IsInf(x, 0) || math.IsNaN(x)) {
		d.Problem(n.at, path, "%s cannot be given to a tool", n)
	}

	return v
}

// after decodes leave, delete, or {move: FOLDER}.
func (d *decoder) after(n *node, path string, v reflect.Value) {
	switch {
	case n.kind == scalar && (n.text == "leave" || n.text == "delete"):
		v.Set(reflect.ValueOf(config.After{Action: n.text}))
	case n.kind == mapping && len(n.entries) == 1 && n.entries[0].key == "move":
		to := n.entries[0].value
		var dir config.Path
		before, template, err := after.SplitTemplate(to.text)
		if err != nil {
			d.Problem(to.at, config.Join(path, "move"), "%s", err)
			return
		}
		if template == "" {
			before = to.text
		}
		cut := *to
		cut.text = before
		d.value(&cut, config.Join(path, "move"), reflect.ValueOf(&dir).Elem(), config.Field{})
		v.Set(reflect.ValueOf(config.After{Action: "move", Dir: string(dir), Template: template}))
	default:
		d.Problem(n.at, path, "must be leave, delete, or {move: FOLDER}, not %s", n)
	}
}

// preset sets missing values to their defaults.
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
		for _, f := range config.Fields(v.Type()) {
			inner := v.Field(f.Index)
			// A setting with a meaningful zero is a pointer. Other settings refuse zero with
			// positive.
			if f.Default != "" && inner.IsZero() {
				d.presetField(f, inner)
			} else {
				d.preset(inner)
			}
		}
	}
}

// preset is the key of a cached default: its type and the text of its tag.
type preset struct {
	of   reflect.Type
	text string
}

// presetField sets a default. Each field gets its own copy.
func (d *decoder) presetField(f config.Field, v reflect.Value) {
	key := preset{v.Type(), f.Default}
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

// readPreset decodes a default like a value of a file, but without a position.
func (d *decoder) readPreset(f config.Field, v reflect.Value) {
	at := config.Position{File: "the defaults"}
	n := word(f.Default, at)
	if inner, ok := strings.CutPrefix(f.Default, "["); ok {
		n = wordList(strings.Split(strings.TrimSuffix(inner, "]"), ", "))
	}

	// Use another decoder, because a default must not count as given.
	quiet := newDecoder(d.Getenv)
	quiet.value(n, f.Key, v, f)
	d.problems = append(d.problems, quiet.problems...)
}
