package loop_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"rouse/agent/tool"
	"rouse/internal/domain"
)

// TestCacheOfSlowCalls checks that the conversation is cached for longer after a call has taken
// longer than the default lifetime of the cache.
func TestCacheOfSlowCalls(t *testing.T) {
	for _, c := range []struct {
		took time.Duration
		kept bool
	}{{4 * time.Minute, false}, {6 * time.Minute, true}, {2 * time.Hour, false}} {
		synctest.Test(t, func(t *testing.T) {
			b := setup(t, say(call("read", `{}`)), say(call("night", `{}`)), say(call("read", `{}`)), say("done"))
			night, err := tool.Define(tool.Spec{Name: "night", Description: "takes long", Effect: domain.EffectRead, Class: tool.ClassOther, Timeout: -1},
				func(context.Context, tool.Invocation, noArgs) (tool.Envelope, error) {
					time.Sleep(c.took)
					return tool.Success("fine"), nil
				})
			if err != nil {
				t.Fatal(err)
			}
			if b.o.Registry, err = b.o.Registry.With(night); err != nil {
				t.Fatal(err)
			}
			b.o.Bounds.Wall, b.o.Bounds.Idle = 24*time.Hour, 24*time.Hour
			if res := b.run(t, t.Context()); res.Outcome != domain.OutcomeSuccess {
				t.Fatalf("%+v", res)
			}
			for i, r := range b.model.requests {
				if want := c.kept && i >= 2; r.KeepAll != want {
					t.Errorf("%s: the request %d is kept for an hour: %v", c.took, i, r.KeepAll)
				}
			}
		})
	}
}
