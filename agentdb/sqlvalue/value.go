// Package sqlvalue converts values of Go and JSON to SQLite values and to the changelog's text
// form.
package sqlvalue

import (
	"encoding/json"
	"time"

	"rouse/agentdb/tabular"
)

// Storable converts a value of Go or JSON to a SQLite value. Lists and objects become JSON text.
func Storable(v any) (any, error) {
	switch v := v.(type) {
	case nil, string, int64, []byte:
		return v, nil
	case bool:
		if v {
			return int64(1), nil
		}
		return int64(0), nil
	case int:
		return int64(v), nil
	case float64:
		return tabular.WholeFloat(v), nil
	case Real:
		return float64(v), nil
	case json.Number:
		return tabular.Number(v), nil
	// The host's time format, so that times compare as texts.
	case time.Time:
		return v.UTC().Format(TimeLayout), nil
	}

	encoded, err := json.Marshal(v)
	return string(encoded), err
}

// Real is a number that is passed to SQLite as a REAL even if it is whole: 7 / 2.0 is not 7 / 2.
type Real float64

// TimeLayout is the format in which the host stores times.
const TimeLayout = "2006-01-02T15:04:05.000Z"

// Now returns the current time in TimeLayout.
func Now() string { return time.Now().UTC().Format(TimeLayout) }

// Pointers returns a pointer to each value, for Scan.
func Pointers(values []any) []any {
	out := make([]any, len(values))
	for i := range values {
		out[i] = &values[i]
	}
	return out
}
