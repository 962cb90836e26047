package config

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
)

// Changes lists the differences between two configurations.
type Changes struct {
	Added, Changed, Removed []string // jobs
	// Others lists the added, removed and changed agents, models, channels and settings.
	Others []string
}

// Compare returns the differences between two configurations. Positions in files do not count.
func Compare(before, after *Config) Changes {
	var c Changes
	old, is := reflect.ValueOf(before).Elem(), reflect.ValueOf(after).Elem()
	for _, f := range Fields(old.Type()) {
		a, b := old.Field(f.Index), is.Field(f.Index)
		if !named(a.Type()) {
			if !same(a, b) {
				c.Others = append(c.Others, f.Key)
			}
			continue
		}

		added, changed, removed := compareLists(a, b)
		if f.Key == "jobs" {
			c.Added, c.Changed, c.Removed = added, changed, removed
			continue
		}

		for _, name := range slices.Concat(added, changed, removed) {
			c.Others = append(c.Others, strings.TrimSuffix(f.Key, "s")+" "+name)
		}
	}

	c.Others = append(c.Others, compareSkills(before, after)...)
	// The values of granted secrets are not in exported fields, so the comparison above misses
	// them.
	if c.Empty() && !slices.Equal(before.Secrets.Values, after.Secrets.Values) {
		c.Others = append(c.Others, "the value of a secret")
	}

	return c
}

// Empty reports whether there are no differences.
func (c Changes) Empty() bool {
	return len(c.Added)+len(c.Changed)+len(c.Removed)+len(c.Others) == 0
}

// named reports whether t is a list of structs with a name.
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

// same reports whether two settings are equal. It ignores positions and unexported fields, such as
// the value of a granted secret.
func same(a, b reflect.Value) bool {
	x, errX := json.Marshal(a.Interface())
	y, errY := json.Marshal(b.Interface())
	return errX == nil && errY == nil && bytes.Equal(x, y)
}
