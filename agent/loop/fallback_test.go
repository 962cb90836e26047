package loop_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"rouse/agent/loop"
	"rouse/agent/model"
	"rouse/internal/domain"
)

// withFallbacks returns a bench with fallback models. Each request goes to the current model.
func withFallbacks(t *testing.T, next []loop.ModelInfo, turns ...func(model.Request) []any) (*bench, *[]int) {
	b := setup(t, turns...)
	b.o.Model = "first"
	var switched []int
	b.o.Fallback = &loop.Fallback{Next: next, Switch: func(i int) { switched = append(switched, i) }}
	return b, &switched
}

func down(kind model.ErrorKind, retryable bool) func(model.Request) []any {
	return say(&model.Error{Kind: kind, Message: "the server is " + string(kind), Retryable: retryable})
}

// TestFallback checks that another model takes over after the retries of the first, and only after
// a failure of the provider.
func TestFallback(t *testing.T) {
	busy := say(&model.Error{Kind: model.KindRateLimited, Message: "come back in an hour", Retryable: true, RetryAfter: time.Hour})
	for name, c := range map[string]struct {
		turns   []func(model.Request) []any
		outcome domain.Outcome
		tries   int // in total
		models  string
	}{
		"down":                 {[]func(model.Request) []any{down(model.KindUnavailable, true), down(model.KindUnavailable, true), down(model.KindUnavailable, true), down(model.KindUnavailable, true), say("done")}, "success", 5, "second"},
		"an hour's pause":      {[]func(model.Request) []any{busy, say("done")}, "success", 2, "second"},
		"out of credit":        {[]func(model.Request) []any{down(model.KindRateLimited, false), say("done")}, "success", 2, "second"},
		"in the middle":        {[]func(model.Request) []any{say(call("read", "{}")), down(model.KindInvalidResponse, false), say(call("read", `{"text":"x"}`)), say("done")}, "success", 4, "first second second"},
		"a chain":              {[]func(model.Request) []any{down(model.KindRateLimited, false), down(model.KindInvalidResponse, false), say("done")}, "success", 3, "third"},
		"all of them":          {[]func(model.Request) []any{down(model.KindRateLimited, false)}, "error", 3, "third"},
		"a wrong key":          {[]func(model.Request) []any{down(model.KindAuth, false), say("done")}, "error", 1, "first"},
		"a refused request":    {[]func(model.Request) []any{down(model.KindBadRequest, false), say("done")}, "error", 1, "first"},
		"too long an answer":   {[]func(model.Request) []any{down(model.KindTruncated, false), say("done")}, "error", 1, "first"},
		"too long a history":   {[]func(model.Request) []any{down(model.KindContextOverflow, false), say("done")}, "error", 1, "first"},
		"the fallback retries": {[]func(model.Request) []any{down(model.KindRateLimited, false), down(model.KindUnavailable, true), down(model.KindUnavailable, true), down(model.KindUnavailable, true), say("done")}, "success", 5, "second"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				warm := 0.5
				b, _ := withFallbacks(t, []loop.ModelInfo{{Name: "second", MaxOutput: 77, Temperature: &warm}, {Name: "third"}}, c.turns...)
				b.o.MaxOutput = 99
				res := b.run(t, t.Context())
				var models []string
				for _, s := range b.log.steps {
					models = append(models, s.Model)
				}
				if got := strings.Join(models, " "); res.Outcome != c.outcome || len(b.model.requests) != c.tries || got != c.models {
					t.Fatalf("%+v after %d tries, answered by %s", res, len(b.model.requests), got)
				}

				last := b.model.requests[len(b.model.requests)-1]
				switch c.models[strings.LastIndex(c.models, " ")+1:] {
				case "second":
					if last.MaxOutput != 77 || last.Temperature != &warm {
						t.Errorf("the second is asked for %d tokens at %v", last.MaxOutput, last.Temperature)
					}
				case "third":
					if last.MaxOutput != 16_000 || last.Temperature != nil {
						t.Errorf("the third is asked for %d tokens at %v", last.MaxOutput, last.Temperature)
					}
				}
			})
		})
	}
}

// TestFallbackIsTold checks that the step records which model took over and why. That model gets
// the notices of the first try, because the first model has not answered them.
func TestFallbackIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, switched := withFallbacks(t, []loop.ModelInfo{{Name: "second"}}, say(call("read", "{}")), down(model.KindInvalidResponse, false), say("done"))
		b.o.Bounds.Steps = 3
		b.run(t, t.Context())
		s := b.log.steps[1]
		want := "[Fallback] second answers from here on in the place of first: the server is nonsense"
		if len(s.Notices) != 2 || s.Notices[1] != want || len(*switched) != 1 {
			t.Errorf("notices: %q, switched %v", s.Notices, *switched)
		}

		said := b.model.requests[2].Messages
		if text := said[len(said)-1].Text; !strings.Contains(text, "[System Notice]") {
			t.Errorf("the second was told %q", text)
		}
	})
}

// TestFallbackFromTheBeginningIsTold checks that a run that starts with another model records the
// reason once.
func TestFallbackFromTheBeginningIsTold(t *testing.T) {
	b, _ := withFallbacks(t, nil, say(call("read", "{}")), say("done"))
	b.o.Fallback.Note = "[Fallback] second answers: first was down"
	b.run(t, t.Context())
	one, two := b.log.steps[0].Notices, b.log.steps[1].Notices
	if len(one) != 1 || one[0] != "[Fallback] second answers: first was down" || len(two) != 0 {
		t.Errorf("notices: %q, %q", one, two)
	}
}

// TestFallbackFits checks that the history is fitted to the smaller context of a fallback, or that
// the error reports that it does not fit.
func TestFallbackFits(t *testing.T) {
	long := strings.Repeat("word ", 2000) // 2500 tokens
	for name, c := range map[string]struct {
		window  int
		outcome domain.Outcome
	}{"as large": {0, "success"}, "smaller": {6000, "success"}, "too small": {1500, "error"}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var turns []func(model.Request) []any
				for range 6 {
					turns = append(turns, say(long[:2000], call("read", `{"text":"`+strings.Repeat("x", 100+len(turns))+`"}`)))
				}

				turns = append(turns, down(model.KindRateLimited, false), say("done"))
				b, _ := withFallbacks(t, []loop.ModelInfo{{Name: "second", Window: c.window, MaxOutput: 100}}, turns...)
				b.o.Messages[0].Text = long
				res := b.run(t, t.Context())
				first, last := b.model.requests[6], b.model.requests[len(b.model.requests)-1]
				switch {
				case res.Outcome != c.outcome:
					t.Fatalf("%+v", res)
				case c.outcome == "error" && (len(b.model.requests) != 7 || !strings.Contains(res.Error, "its fallback second cannot go on") || !strings.Contains(res.Error, "rate_limited")):
					t.Errorf("%+v after %d requests", res, len(b.model.requests))
				case name == "smaller" && len(last.Messages) >= len(first.Messages), name == "as large" && len(last.Messages) != len(first.Messages):
					t.Errorf("%d messages became %d", len(first.Messages), len(last.Messages))
				}
			})
		})
	}
}

// TestFallbackIsReserved checks that a turn is reserved again for the fallback, which has its own
// price.
func TestFallbackIsReserved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, purse := tilled(t, 9, down(model.KindRateLimited, false), say("end", model.Usage{Input: 6}))
		b.o.Fallback = &loop.Fallback{Next: []loop.ModelInfo{{Name: "second", MaxOutput: 7}}, Switch: func(int) {
			if err := b.log.add("switch"); err != nil {
				t.Error(err)
			}
		}}

		b.run(t, t.Context())
		want := "reserve for step 1\nstep 1 begins\nsettle 0\nswitch\nreserve for step 1\nsettle 6\nstep 1 ends"
		if got := strings.Join(b.log.lines, "\n"); got != want || purse.held[1].Output != 50 || purse.held[2].Output != 7 {
			t.Errorf("got\n%s\nwant\n%s\nheld %+v", got, want, purse.held)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		b, _ := tilled(t, 1, down(model.KindRateLimited, false), say("end"))
		b.o.Fallback = &loop.Fallback{Next: []loop.ModelInfo{{Name: "second"}}, Switch: func(int) {}}
		if res := b.run(t, t.Context()); res.Outcome != "budget_exceeded" || len(b.model.requests) != 1 {
			t.Errorf("%+v", res)
		}
	})
}
