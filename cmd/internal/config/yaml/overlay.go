package yaml

import (
	"path/filepath"
	"reflect"
	"strings"

	"github.com/spf13/viper"

	"rouse/cmd/internal/config"
)

// overlayScalars overrides the daemon's scalars by environment variables, and home also by its
// flag. The flag wins.
func (d *decoder) overlayScalars(root *node) {
	v, keys := viper.New(), scalarKeys(reflect.TypeFor[config.Config](), "")
	for _, key := range keys {
		if value := d.Getenv(environmentName(key)); value != "" {
			v.SetDefault(key, value)
		}
	}
	if d.Home != "" {
		v.Set("home", d.Home)
	}

	for _, key := range keys {
		if !v.IsSet(key) {
			continue
		}

		text, at := v.GetString(key), config.Position{File: "$" + environmentName(key)}
		if key == "home" {
			if d.Home != "" {
				at.File = "--home"
			}
			if abs, err := filepath.Abs(text); err == nil { // unlike paths in the file, it is relative to the working directory
				text = abs
			}
		}

		// Escape the value, because the decoder expands it, but a variable's value is literal.
		put(root, strings.Split(key, "."), word(escape(text), at))
	}
}

// environmentName returns the name of the variable that can set a key.
func environmentName(key string) string {
	return "ROUSE_" + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
}

func scalarKeys(t reflect.Type, path string) []string {
	var out []string
	for _, f := range config.Fields(t) {
		inner := t.Field(f.Index).Type
		switch {
		case f.Env:
			out = append(out, config.Join(path, f.Key))
		case inner.Kind() == reflect.Struct:
			out = append(out, scalarKeys(inner, config.Join(path, f.Key))...)
		}
	}

	return out
}

// put sets a value in a tree and creates the mappings on the way.
func put(n *node, path []string, value *node) {
	if n.kind != mapping {
		return // the decoder reports this
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
