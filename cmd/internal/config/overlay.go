package config

import (
	"path/filepath"
	"reflect"
	"strings"

	"github.com/spf13/viper"
)

// overlayScalars overrides the daemon's scalars by flags and, where there is none, by the environment.
func (d *decoder) overlayScalars(root *node, o LoadOptions) {
	v, keys := viper.New(), d.scalarKeys(reflect.TypeFor[Config](), "")
	for _, key := range keys {
		if value := o.Getenv(environmentName(key)); value != "" {
			v.SetDefault(key, value)
		}
	}
	if o.Home != "" {
		v.Set("home", o.Home)
	}

	for _, key := range keys {
		if !v.IsSet(key) {
			continue
		}

		text, at := v.GetString(key), Position{File: "$" + environmentName(key)}
		if key == "home" {
			if o.Home != "" {
				at.File = "--home"
			}
			if abs, err := filepath.Abs(text); err == nil { // the working folder is what a shell's paths are relative to
				text = abs
			}
		}

		// Escaped, since the decoder expands it: a value of the environment is not a template.
		put(root, strings.Split(key, "."), word(escape(text), at))
	}
}

// environmentName is the variable that may set a key.
func environmentName(key string) string {
	return "ROUSE_" + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
}

// scalarKeys are the settings that the environment may decide.
func (d *decoder) scalarKeys(t reflect.Type, path string) []string {
	var out []string
	for _, f := range d.tags.of(t) {
		inner := t.Field(f.index).Type
		switch {
		case f.env:
			out = append(out, join(path, f.key))
		case inner.Kind() == reflect.Struct:
			out = append(out, d.scalarKeys(inner, join(path, f.key))...)
		}
	}

	return out
}

// put sets a value in a tree, making the mappings on the way.
func put(n *node, path []string, value *node) {
	if n.kind != mapping {
		return // which the decoder refuses
	}

	e := n.entry(path[0])
	if e == nil {
		n.entries = append(n.entries, entry{path[0], value.at, &node{kind: mapping, at: value.at}})
		e = &n.entries[len(n.entries)-1]
	}

	if len(path) == 1 {
		e.value = value
		return
	}

	put(e.value, path[1:], value)
}
