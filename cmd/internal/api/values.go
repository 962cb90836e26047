package api

import (
	"strconv"
	"time"
)

// Time is an instant as JSON: RFC 3339 UTC with milliseconds, null when it has not come.
type Time struct{ time.Time }

// At is an instant as JSON.
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

// Path is a path on the machine of the daemon, as a request names it. It cannot be used as the name of a file: the daemon
// decides first whether the sender of the request may name it (access.LocalPath for places of the owner, readable in the daemon
// for the file of a run).
type Path string

// KindLimit is the Kind of an Error of a request that comes when too much waits, or was asked for, already (OSA-26).
const KindLimit = "task_limit_reached"

// RetryAfter is a duration as the header Retry-After has it: whole seconds, and one at least.
func RetryAfter(d time.Duration) string {
	return strconv.FormatInt(max(1, int64((d+time.Second-1)/time.Second)), 10)
}
