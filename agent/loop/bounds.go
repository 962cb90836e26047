package loop

import (
	"time"
)

// Bounds are the hard limits of one attempt; 0 means the default, below 0 none.
type Bounds struct {
	Steps, Calls int           // 30, or without a model none, and 100
	Wall         time.Duration // 10m
	Idle         time.Duration // 5m without an event of the model; calls have times of their own
	Tokens       int64         // none
	CostMicroUSD int64         // none; Options.Budget knows what a turn costs, and keeps it
	Output       int64         // bytes that the model writes; 1 MiB
}

func (b Bounds) withDefaults() Bounds {
	set := func(v *int64, d int64) {
		if *v == 0 {
			*v = d
		}
	}

	steps, calls, wall, idle := int64(b.Steps), int64(b.Calls), int64(b.Wall), int64(b.Idle)
	set(&steps, 30)
	set(&calls, 100)
	set(&wall, int64(10*time.Minute))
	set(&idle, int64(5*time.Minute))
	set(&b.Output, 1<<20)
	b.Steps, b.Calls, b.Wall, b.Idle = int(steps), int(calls), time.Duration(wall), time.Duration(idle)

	return b
}

// After is what is left for an attempt that continues where an interrupted one had used this
// much: bounds are those of a run. One step and one call are always left, to end it properly.
func (b Bounds) After(steps, calls int, tokens int64) Bounds {
	b = b.withDefaults()
	if b.Steps > 0 {
		b.Steps = max(b.Steps-steps, 1)
	}

	if b.Calls > 0 {
		b.Calls = max(b.Calls-calls, 1)
	}

	return b.AfterTokens(tokens)
}

// Exhausted says whether these steps or tokens are all that there was.
func (b Bounds) Exhausted(steps int, tokens int64) bool {
	b = b.withDefaults()
	return b.Steps > 0 && steps >= b.Steps || b.Tokens > 0 && tokens >= b.Tokens
}

// AfterCost is After for the cost of the turns.
func (b Bounds) AfterCost(microUSD int64) Bounds {
	if b.CostMicroUSD > 0 {
		b.CostMicroUSD = max(b.CostMicroUSD-microUSD, 1)
	}
	return b
}

// AfterTokens is After for the tokens alone, of a run whose steps and calls are counted from the start again.
func (b Bounds) AfterTokens(tokens int64) Bounds {
	if b.Tokens > 0 {
		b.Tokens = max(b.Tokens-tokens, 1)
	}
	return b
}

// Within is the stricter of both, bound by bound.
func (b Bounds) Within(o Bounds) Bounds {
	b, o = b.withDefaults(), o.withDefaults()
	return Bounds{
		Steps: stricter(b.Steps, o.Steps), Calls: stricter(b.Calls, o.Calls), Wall: stricter(b.Wall, o.Wall),
		Idle: stricter(b.Idle, o.Idle), Tokens: stricter(b.Tokens, o.Tokens), Output: stricter(b.Output, o.Output),
		CostMicroUSD: stricter(b.CostMicroUSD, o.CostMicroUSD),
	}
}

// stricter is the smaller bound; 0 or less is no bound, and weaker than any.
func stricter[N int | int64 | time.Duration](a, b N) N {
	if a <= 0 || (b > 0 && b < a) {
		return b
	}
	return a
}
