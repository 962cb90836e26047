package executor

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"
)

// fields is an object in the output of a program. A value that is missing or has an unexpected form
// is zero. Nil if the value is not an object.
type fields map[string]json.RawMessage

func fieldsOf(raw json.RawMessage) (f fields) {
	if len(raw) == 0 || raw[0] != '{' || json.Unmarshal(raw, &f) != nil {
		return nil
	}
	return f
}

func (f fields) has(key string) bool { return len(f[key]) > 0 && string(f[key]) != "null" }

func (f fields) object(key string) fields { return fieldsOf(f[key]) }

// objects returns the objects of a list.
func (f fields) objects(key string) (out []fields) {
	for _, item := range list(f[key]) {
		if o := fieldsOf(item); o != nil {
			out = append(out, o)
		}
	}
	return out
}

func (f fields) text(key string) string { return textOf(f[key]) }

func (f fields) isTrue(key string) bool { return string(f[key]) == "true" }

// maxCount bounds a credible number of tokens or turns.
const maxCount = 1 << 40

func (f fields) count(key string) int64 {
	n, _ := number(f[key])
	return int64(min(max(n, 0), maxCount))
}

// maxDollars bounds the credible cost of one run.
const maxDollars = 10_000

// dollars is an amount in USD.
type dollars struct {
	usd   float64
	known bool
	wrong string // an impossible value
}

func (f fields) dollars(key string) dollars {
	usd, ok := number(f[key])
	switch {
	case !f.has(key):
		return dollars{}
	case ok && usd >= 0 && usd <= maxDollars:
		return dollars{usd: usd, known: true}
	}
	return dollars{wrong: clip(string(f[key]), 40)}
}

func number(raw []byte) (float64, bool) {
	f, err := strconv.ParseFloat(strings.Trim(string(raw), `"`), 64)
	if err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
		return 0, false
	}
	return f, true
}

func textOf(raw json.RawMessage) (s string) {
	if json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return s
}

// list returns the items of a list, or nil.
func list(raw json.RawMessage) (out []json.RawMessage) {
	if len(raw) == 0 || raw[0] != '[' || json.Unmarshal(raw, &out) != nil {
		return nil
	}
	return out
}
