package playbook

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// ExpandValue expands templates, and expressions after "= ", at any depth of a value.
func ExpandValue(name string, v any, data map[string]any) (any, error) {
	return expandValue(name, v, data)
}

// expandValue expands templates and expressions at any depth.
func expandValue(name string, v any, data map[string]any) (any, error) {
	switch v := v.(type) {
	case string:
		if source, ok := strings.CutPrefix(v, marker); ok {
			return evaluate(name, source, data)
		}
		return Expand(name, v, data)
	case []any:
		out := make([]any, len(v))
		for i, item := range v {
			var err error
			if out[i], err = expandValue(fmt.Sprintf("%s[%d]", name, i), item, data); err != nil {
				return nil, err
			}
		}

		return out, nil
	case map[string]any:
		out := make(map[string]any, len(v))
		for _, k := range slices.Sorted(maps.Keys(v)) { // sorted, so that of two mistakes the same one is reported
			var err error
			if out[k], err = expandValue(name+"."+k, v[k], data); err != nil {
				return nil, err
			}
		}

		return out, nil
	}
	return v, nil
}

// toList is the items of a list of any type.
func toList(v any) ([]any, bool) {
	if items, ok := v.([]any); ok {
		return append([]any{}, items...), true
	}

	l := reflect.ValueOf(v)
	if v == nil || l.Kind() != reflect.Slice {
		return nil, false
	}

	items := make([]any, l.Len())
	for i := range items {
		items[i] = l.Index(i).Interface()
	}

	return items, true
}

// decode reads a result so that whole numbers stay whole.
func decode(raw json.RawMessage) (any, error) {
	if len(raw) == 0 {
		return nil, nil
	}

	var v any
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber() // a float64 would round ids above 2^53
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	return plainNumbers(v), nil
}

func plainNumbers(v any) any {
	switch v := v.(type) {
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}

		f, err := v.Float64()
		if err != nil {
			return v.String() // larger than any float
		}
		return f
	case []any:
		for i := range v {
			v[i] = plainNumbers(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = plainNumbers(v[k])
		}
	}
	return v
}
