package config

import (
	"reflect"
	"slices"
	"strings"
)

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
	for _, f := range (tags{}).of(old.Type()) {
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

// Empty says that both mean the same.
func (c Changes) Empty() bool {
	return len(c.Added)+len(c.Changed)+len(c.Removed)+len(c.Others) == 0
}

// named says whether a setting is a list of things with names.
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

// same compares all but positions.
func same(a, b reflect.Value) bool {
	if a.Kind() != b.Kind() || a.IsValid() && a.Type() != b.Type() {
		return false
	}

	switch a.Kind() {
	case reflect.Invalid: // two interfaces that hold nothing
		return true
	case reflect.Pointer, reflect.Interface:
		return a.IsNil() == b.IsNil() && same(a.Elem(), b.Elem())
	case reflect.Struct:
		if a.Type() == reflect.TypeFor[Position]() {
			return true
		}

		for i := range a.NumField() {
			// Unexported fields hold what was resolved, like the value of a granted secret.
			if a.Type().Field(i).IsExported() && !same(a.Field(i), b.Field(i)) {
				return false
			}
		}
		return true
	case reflect.Slice:
		if a.IsNil() != b.IsNil() || a.Len() != b.Len() {
			return false
		}

		for i := range a.Len() {
			if !same(a.Index(i), b.Index(i)) {
				return false
			}
		}
		return true
	case reflect.Map:
		if a.IsNil() != b.IsNil() || a.Len() != b.Len() {
			return false
		}

		for _, key := range a.MapKeys() {
			if v := b.MapIndex(key); !v.IsValid() || !same(a.MapIndex(key), v) {
				return false
			}
		}
		return true
	}

	return a.Equal(b)
}
