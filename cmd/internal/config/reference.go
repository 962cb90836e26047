package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"rouse/internal/text"
)

// Key is a key of rouse.yaml as a person reads of it. It is made of the tags that the decoder goes by.
type Key struct {
	Path     string   `json:"key"` // jobs[].watch.path
	Type     string   `json:"type"`
	Values   []string `json:"values,omitempty"`  // all that it can be; none: whatever its type says
	Default  string   `json:"default,omitempty"` // as YAML, or in words where it depends on something else
	Required bool     `json:"required"`          // where what it stands in is given
	Secret   bool     `json:"secret,omitempty"`  // its value is never shown or stored
	Env      string   `json:"env,omitempty"`     // the variable that may set it
	Says     string   `json:"description,omitempty"`
	Where    string   `json:"where"` // in words: what it is a key of, and where else it may stand
	Later    string   `json:"later,omitempty"`
	Example  string   `json:"example"`        // YAML, from the top of the file
	Keys     []string `json:"keys,omitempty"` // that stand below it
}

// Keys are all keys, each after the one that it stands in.
func Keys() []Key {
	r := referrer{known: tags{}}
	r.walk(reflect.TypeFor[Config](), "", false)
	return r.out
}

// FindKeys are the keys that a person may mean by the end of a path: "schedule", "jobs.schedule" and "jobs[].schedule" are one. Where
// none has that name the second result asks for the nearest.
func FindKeys(name string) (found []Key, hint string) {
	all := Keys()
	wanted := plainPath(name)
	for _, k := range all {
		if plain := plainPath(k.Path); plain == wanted {
			return []Key{k}, ""
		} else if strings.HasSuffix(plain, "."+wanted) {
			found = append(found, k)
		}
	}
	if len(found) > 0 || wanted == "" {
		return found, ""
	}
	return nil, text.DidYouMean(strings.TrimSpace(name), nearNames(all, wanted))
}

// nearNames are the names among which a misspelt one is looked for: as much of the end of each path as was given.
func nearNames(all []Key, wanted string) (out []string) {
	parts := strings.Count(wanted, ".") + 1
	for _, k := range all {
		plain := strings.Split(plainPath(k.Path), ".")
		out = append(out, strings.Join(plain[max(len(plain)-parts, 0):], "."))
	}
	return out
}

// plainPath is a path without the marks of its lists. What stands in defaults is a key of jobs.
func plainPath(path string) string {
	path = strings.ReplaceAll(strings.ToLower(strings.Trim(path, " .:")), "[]", "")
	if rest, ok := strings.CutPrefix(path, "defaults."); ok {
		return "jobs." + rest
	}
	return path
}

// referrer collects keys.
type referrer struct {
	known tags
	out   []Key
}

// walk collects the keys of a struct. owned says that it stands below a key that a job alone has.
func (r *referrer) walk(t reflect.Type, path string, owned bool) (names []string) {
	for _, f := range r.known.of(t) {
		names = append(names, f.key)
		ft := t.Field(f.index).Type
		here := join(path, f.key)
		if isList(ft) && structOf(ft) != nil {
			here += "[]"
		}

		at := len(r.out)
		r.out = append(r.out, r.key(ft, f, path, here, owned || f.owns))
		// The keys of defaults are those of jobs, and say so themselves.
		if inner := structOf(ft); inner != nil && f.key != "defaults" {
			r.out[at].Keys = r.walk(inner, here, owned || f.owns)
		}
	}
	return names
}

func (r *referrer) key(t reflect.Type, f field, parent, path string, owned bool) Key {
	k := Key{
		Path: path, Type: typeWords(t), Default: f.preset + f.unset, Required: f.need, Secret: f.secret, Says: f.say, Later: f.later,
		Where: whereText(parent, owned), Example: under(path, r.example(t, f)),
	}
	for value := range strings.SplitSeq(f.enum, "|") {
		if value != "" && !strings.HasSuffix(value, "*") {
			k.Values = append(k.Values, value)
		}
	}
	if t == reflect.TypeFor[After]() {
		k.Values = []string{"leave", "delete", "{move: FOLDER}"}
	}
	if f.env {
		k.Env = environmentName(path)
	}
	return k
}

func whereText(parent string, owned bool) string {
	switch {
	case parent == "":
		return "at the top of the file"
	case strings.HasPrefix(parent, "jobs[]") && !owned:
		return fmt.Sprintf("in %s, and for all jobs in %s", parent, strings.Replace(parent, "jobs[]", "defaults", 1))
	}
	return "in " + parent
}

// structOf is the struct that a setting is, or that the items of a list are; nil where there is none. What reads a text or a form of its
// own is none.
func structOf(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || t == reflect.TypeFor[After]() {
		return nil
	}
	return t
}

func isList(t reflect.Type) bool { return t.Kind() == reflect.Slice }

// typeWords says what a setting is.
func typeWords(t reflect.Type) string {
	switch {
	case t.Kind() == reflect.Pointer:
		return typeWords(t.Elem())
	case t == reflect.TypeFor[After]():
		return "what becomes of a file"
	case t == reflect.TypeFor[Name]():
		return "a name"
	case shortForm(t) == "Path":
		return "a path, or a mapping"
	case shortForm(t) != "":
		return "a name, or a mapping"
	}

	switch t.Kind() {
	case reflect.Slice:
		words := "a list of " + strings.TrimPrefix(strings.TrimPrefix(typeWords(t.Elem()), "a "), "an ")
		if t.Elem().Kind() == reflect.Struct && shortForm(t.Elem()) == "" {
			words += "s"
		} else if oneWillDo(t.Elem()) {
			words += ", or one alone"
		}
		return words
	case reflect.Struct:
		return "a mapping"
	case reflect.Map:
		return "a mapping of names to values"
	case reflect.Interface:
		return "any value"
	}
	return typeName(t)
}

// example is a value of a setting, as YAML in the flow form, which fits behind a key.
func (r *referrer) example(t reflect.Type, f field) string {
	if f.eg != "" {
		return f.eg
	}
	if inner := structOf(t); inner != nil {
		return r.mappingExample(t, inner)
	}
	if t.Kind() == reflect.Pointer {
		return r.example(t.Elem(), f)
	}
	if t.Kind() == reflect.Slice && f.preset == "" {
		return "[" + r.example(t.Elem(), f) + "]"
	}
	return scalarExample(t, f)
}

// mappingExample is a mapping with what it must have, or with its first key.
func (r *referrer) mappingExample(t, inner reflect.Type) string {
	fields := r.known.of(inner)
	var parts []string
	for _, f := range fields {
		if f.need {
			parts = append(parts, f.key+": "+r.example(inner.Field(f.index).Type, f))
		}
	}
	if len(parts) == 0 {
		f := fields[slices.IndexFunc(fields, func(f field) bool { return f.later == "" })]
		parts = append(parts, f.key+": "+r.example(inner.Field(f.index).Type, f))
	}

	out := "{" + strings.Join(parts, ", ") + "}"
	if t.Kind() == reflect.Slice {
		return "[" + out + "]"
	}
	return out
}

func scalarExample(t reflect.Type, f field) string {
	if f.enum != "" && f.preset == "" {
		word, _, _ := strings.Cut(f.enum, "|")
		return strings.TrimSuffix(word, "*")
	}
	if t.Kind() == reflect.Bool {
		return fmt.Sprint(f.preset != "true") // the default needs no line
	}
	if f.preset != "" {
		return f.preset
	}

	switch t {
	case reflect.TypeFor[Duration]():
		return "15m"
	case reflect.TypeFor[Size]():
		return "10MiB"
	}
	if f.secret {
		return "secret:NAME"
	}
	return ""
}

// under writes a value below its path, from the top of a file.
func under(path, value string) string {
	parts := strings.Split(path, ".")
	var out strings.Builder
	indent := ""
	for i, part := range parts {
		name, inList := strings.CutSuffix(part, "[]")
		out.WriteString(indent + name + ":")
		if i == len(parts)-1 {
			break
		}

		out.WriteString("\n")
		// The dash of an item stands where its first key would begin.
		indent = strings.ReplaceAll(indent, "- ", "  ") + "  "
		if inList {
			indent += "- "
		}
	}
	return out.String() + " " + value + "\n"
}
