package wire

import (
	"bytes"
	"encoding/json"
	"math"

	"rouse/agent/model"
)

// TokenCount is a number of tokens as a server reports it. Servers leave it out, send it as a
// string, or send nonsense: none of that may cost an answer, or give tokens back to a run.
type TokenCount int64

// UnmarshalJSON implements json.Unmarshaler.
func (c *TokenCount) UnmarshalJSON(raw []byte) error {
	// A float takes 7.0 and 1e3 too; what is no number counts as 0, and is no error.
	var n float64
	if json.Unmarshal(bytes.Trim(raw, `"`), &n) != nil || math.IsNaN(n) {
		n = 0
	}
	// Bounded so that a sum of counts, and its price, cannot overflow.
	*c = TokenCount(min(max(n, 0), 1<<40))
	return nil
}

// NewUsage is what an answer used. Tokens read from the provider's cache, and those written to
// it, are part of the input.
func NewUsage(input, output, cached, written TokenCount) *model.Usage {
	u := model.Usage{Input: int64(input), Output: int64(output), Cached: int64(cached), Written: int64(written)}.Clamped()
	return &u
}

func addUsage(a model.Usage, b *model.Usage) model.Usage {
	if b == nil {
		return a
	}
	return model.Usage{Input: a.Input + b.Input, Output: a.Output + b.Output, Cached: a.Cached + b.Cached, Written: a.Written + b.Written}
}
