package api

import (
	"strconv"
	"time"
)

// Time is a time with a JSON form: RFC 3339 in UTC with milliseconds, or null for the zero time.
type Time struct{ time.Time }

// At converts a time to a Time.
func At(t time.Time) Time { return Time{t} }

// MarshalJSON implements json.Marshaler.
func (t Time) MarshalJSON() ([]byte, error) {
	if t.IsZero() {
		return []byte("null"), nil
	}
	return t.UTC().AppendFormat(nil, `"2006-01-02T15:04:05.000Z"`), nil
}

// UnmarshalJSON implements json.Unmarshaler.
func (t *Time) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		t.Time = time.Time{}
		return nil
	}
	return t.Time.UnmarshalJSON(text)
}

// Path is a path on the daemon's machine in a request. Its type prevents direct use as a file name.
// The daemon must first check whether the sender may name the path. web.LocalPath does so for the
// owner's paths, readable in the daemon for the file of a run.
type Path string

// KindLimit is the Kind of an Error if too many tasks are waiting or were requested.
const KindLimit = "task_limit_reached"

// RetryAfter formats a duration for the Retry-After header, in whole seconds and at least one.
func RetryAfter(d time.Duration) string {
	return strconv.FormatInt(max(1, int64((d+time.Second-1)/time.Second)), 10)
}
