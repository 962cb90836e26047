package config

import "reflect"

// field is a setting of a struct type, as its tags describe it:
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
type field struct {
	index                             int
	key, enum, unset, say, eg         string
	preset                            string
	need, positive, secret, env, owns bool
}

// tags caches the settings of struct types: parsing them again for each of ten thousand jobs
// takes seconds.
type tags map[reflect.Type][]field

func (known tags) of(t reflect.Type) []field {
	out, ok := known[t]
	if ok {
		return out
	}

	for i := range t.NumField() {
		tag := t.Field(i).Tag
		key := tag.Get("key")
		if key == "" {
			continue
		}

		has := func(name string) bool { return tag.Get(name) != "" }
		out = append(out, field{
			index: i, key: key, enum: tag.Get("enum"), unset: tag.Get("unset"), say: tag.Get("say"), eg: tag.Get("eg"),
			preset: tag.Get("default"), need: has("need"), positive: has("positive"), secret: has("secret"), env: has("env"), owns: has("own"),
		})
	}

	known[t] = out
	return out
}

func keysOf(fields []field) []string {
	keys := make([]string, len(fields))
	for i, f := range fields {
		keys[i] = f.key
	}
	return keys
}
