package config

import (
	"reflect"
	"sync"
)

// Field is a setting of a struct type, as its tags describe it:
//
//	key       its name in YAML
//	need      it must be given
//	default   what it is when it is left out, as YAML
//	unset     the same in words, where it depends on something else
//	enum      its values
//	positive  zero is not a value
//	secret    its value is never shown or stored
//	env       ROUSE_… may set it
//	own       it belongs to one job, and cannot stand in defaults
//	say       what it does, for editors and rouse explain
//	eg        an example, as YAML, where neither default, enum nor type make one
type Field struct {
	Index                                    int
	Key, Enum, DefaultDoc, Doc, Example      string
	Default                                  string
	Required, Positive, Secret, Env, JobOnly bool
}

// knownFields caches the results of fieldsOf.
var knownFields sync.Map

// Fields returns the settings of a struct type.
func Fields(t reflect.Type) []Field {
	if known, ok := knownFields.Load(t); ok {
		return known.([]Field) //nolint:forcetypeassert // nothing else is stored
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

func Keys(fields []Field) []string {
	keys := make([]string, len(fields))
	for i, f := range fields {
		keys[i] = f.Key
	}
	return keys
}
