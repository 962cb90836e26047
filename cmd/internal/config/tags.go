package config

import (
	"reflect"
	"sync"
)

// Field is a setting of a struct type, as described by its tags:
//
//	key         its name in YAML
//	required    it must be set
//	default     its default as YAML
//	defaultdoc  its default in words, if it depends on something else
//	enum        its allowed values
//	positive    it must be greater than zero
//	secret      its value is never shown or stored
//	env         a ROUSE_… variable can set it
//	jobonly     it belongs to one job and is not allowed in defaults
//	doc         its description, for editors and rouse explain
//	example     an example as YAML, if default, enum and type do not provide one
type Field struct {
	Index                                    int
	Key, Enum, DefaultDoc, Doc, Example      string
	Default                                  string
	Required, Positive, Secret, Env, JobOnly bool
}

// knownFields caches the results of Fields.
var knownFields sync.Map

// Fields returns the settings of a struct type.
func Fields(t reflect.Type) []Field {
	if known, ok := knownFields.Load(t); ok {
		return known.([]Field) //nolint:forcetypeassert // only Fields stores values here
	}

	var out []Field
	for i := range t.NumField() {
		tag := t.Field(i).Tag
		key := tag.Get("key")
		if key == "" {
			continue
		}

		has := func(name string) bool { return tag.Get(name) != "" }
		out = append(out, Field{
			Index: i, Key: key, Enum: tag.Get("enum"), DefaultDoc: tag.Get("defaultdoc"), Doc: tag.Get("doc"), Example: tag.Get("example"),
			Default: tag.Get("default"), Required: has("required"), Positive: has("positive"), Secret: has("secret"), Env: has("env"), JobOnly: has("jobonly"),
		})
	}

	knownFields.Store(t, out)
	return out
}

// Keys returns the keys of fields.
func Keys(fields []Field) []string {
	keys := make([]string, len(fields))
	for i, f := range fields {
		keys[i] = f.Key
	}
	return keys
}
