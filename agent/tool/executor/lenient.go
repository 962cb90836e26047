package executor

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"

	"rouse/internal/text"
)

// The values of a program's JSON. One that has another form than expected is left out: the rest of its event counts.

// words is a text; anything else is none.
type words string

// UnmarshalJSON implements json.Unmarshaler.
func (w *words) UnmarshalJSON(raw []byte) error {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		*w = words(s)
	}
	return nil
}

// maxCount bounds a count that can be true.
const maxCount = 1 << 40

// count is a number of tokens or turns, within what can be true.
type count int64

// UnmarshalJSON implements json.Unmarshaler.
func (c *count) UnmarshalJSON(raw []byte) error {
	if f, ok := number(raw); ok {
		*c = count(min(max(f, 0), maxCount))
	}
	return nil
}

// maxDollars is the most that one run is believed to have cost: beyond it the number is damaged.
const maxDollars = 10_000

// dollars is an amount in USD.
type dollars struct {
	usd   float64
	known bool
	wrong string // a value that cannot be true
}

// UnmarshalJSON implements json.Unmarshaler.
func (d *dollars) UnmarshalJSON(raw []byte) error {
	f, ok := number(raw)
	switch {
	case ok && f >= 0 && f <= maxDollars:
		*d = dollars{usd: f, known: true}
	case string(raw) != "null":
		*d = dollars{wrong: clip(string(raw), 40)}
	}
	return nil
}

// flag is a truth; anything else is false.
type flag bool

// UnmarshalJSON implements json.Unmarshaler.
func (f *flag) UnmarshalJSON(raw []byte) error {
	*f = string(raw) == "true"
	return nil
}

func number(raw []byte) (float64, bool) {
	f, err := strconv.ParseFloat(strings.Trim(string(raw), `"`), 64)
	return f, err == nil && !math.IsNaN(f) && !math.IsInf(f, 0)
}

// object reads an object whose parts may have any form; false where it is none.
func object(raw json.RawMessage, into any) bool {
	return len(raw) > 0 && raw[0] == '{' && json.Unmarshal(raw, into) == nil
}

// list are the items of a list; nil where it is none.
func list(raw json.RawMessage) (out []json.RawMessage) {
	if len(raw) > 0 && raw[0] == '[' && json.Unmarshal(raw, &out) != nil {
		return nil
	}
	return out
}

// clean is a text of a program that people may read: valid, and nothing in it moves a cursor.
func clean(s string) string { return text.Clean(s) }
