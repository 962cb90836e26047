package model

import "math"

// Price is what a model costs, in USD per million tokens, which is micro-USD per token.
type Price struct{ Input, Output, Cached float64 }

// maxTokens bounds the token counts of a server that can be true.
const maxTokens = 1 << 40

// The surcharges for writing a part of the input to the cache, as parts of the price of the input.
const (
	cacheWriteSurcharge = 0.25 // for CacheMinutes
	cacheHourSurcharge  = 1    // for CacheHour
)

// Cost is what a usage costs in micro-USD, rounded up. Impossible counts (below zero, more cached
// tokens than there were) are read as the most expensive that they may have meant.
func (p Price) Cost(u Usage) int64 {
	u = u.Clamped()
	surcharge := float64(u.Written-u.WrittenLong)*cacheWriteSurcharge + float64(u.WrittenLong)*cacheHourSurcharge
	cost := float64(u.Input-u.Cached)*p.Input + float64(u.Cached)*p.Cached + surcharge*p.Input + float64(u.Output)*p.Output
	if cost >= math.MaxInt64/2 {
		return math.MaxInt64 / 2
	}
	// Decimal prices are not exact as floats. Their sum is off by less than this, which must not
	// round up to a whole micro-USD.
	return int64(math.Ceil(cost - 1e-6))
}

// Free says that the model costs nothing.
func (p Price) Free() bool { return p == Price{} }

// Clamped is the usage with impossible counts replaced.
func (u Usage) Clamped() Usage {
	within := func(n, most int64) int64 { return min(max(n, 0), most) }
	u.Input, u.Output = within(u.Input, maxTokens), within(u.Output, maxTokens)
	// None cached is the most expensive reading.
	if u.Cached > u.Input {
		u.Cached = 0
	}

	u.Cached = within(u.Cached, u.Input)
	u.Written = within(u.Written, u.Input-u.Cached)
	u.WrittenLong = within(u.WrittenLong, u.Written)
	return u
}
