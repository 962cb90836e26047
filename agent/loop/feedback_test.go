package loop_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"rouse/agent/loop"
	"rouse/agent/model"
)

// TestBrokenCallFeedback checks that a model gets feedback about an unreadable call once, with the
// next try. A fallback does not get it. The step records the failures.
func TestBrokenCallFeedback(t *testing.T) {
	broken := &model.Error{Kind: model.KindInvalidResponse, Message: "odd arguments", Retryable: true, Feedback: "Your arguments are odd."}
	last := func(r model.Request) string { return r.Messages[len(r.Messages)-1].Text }
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, say(broken), say(broken), say(model.Retried{Times: 2, Last: "503"}, call("read", "{}")), say("done"))
		res := b.run(t, t.Context())
		if res.Outcome != "success" || len(b.model.requests) != 4 {
			t.Fatalf("%+v", res)
		}

		for i, told := range []bool{false, true, true, false} {
			if got := last(b.model.requests[i]); strings.Contains(got, "[System Notice] Your arguments are odd.") != told {
				t.Errorf("request %d: %q", i+1, got)
			}
		}

		one, two := b.log.steps[0], b.log.steps[1]
		if one.Retried != (model.Retried{Times: 4, Last: "503"}) || two.Retried != (model.Retried{}) || strings.Count(strings.Join(one.Notices, "\n"), "Your arguments are odd.") != 2 {
			t.Errorf("recorded: %+v, %+v", one, two)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, say(broken), say(broken), say(broken), say(broken), say("done"))
		b.o.Fallback = &loop.Fallback{Next: []loop.ModelInfo{{Name: "second"}}, Switch: func(int) {}}
		res := b.run(t, t.Context())
		if got := last(b.model.requests[4]); res.Outcome != "success" || strings.Contains(got, "odd") {
			t.Errorf("the fallback was told %q: %+v", got, res)
		}
	})
}
