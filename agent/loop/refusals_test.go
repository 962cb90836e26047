package loop_test

import (
	"strings"
	"testing"

	"rouse/agent/model"
	"rouse/internal/domain"
)

type answer = func(model.Request) []any

// TestRepeatedRefusals checks that the model is warned at the third refusal of the same call, and that the fifth ends the run with an
// error that names the call and the refusal. Repeated calls in one answer count once. A different call resets the count.
func TestRepeatedRefusals(t *testing.T) {
	t.Parallel()
	refused, other, read := call("nope", `{"a": 1, "b": 2}`), call("nope", `{"a":2}`), call("look", `{"path":"/a"}`)
	same := call("nope", `{"b":2,"a":1}`)
	for name, c := range map[string]struct {
		turns   []answer
		outcome domain.Outcome
		steps   int
	}{
		"five times":             {[]answer{say(refused), say(same), say(refused), say(refused), say(refused), say("done")}, domain.OutcomeError, 5},
		"four times":             {[]answer{say(refused), say(refused), say(refused), say(refused), say("done")}, domain.OutcomeSuccess, 5},
		"with reads between":     {[]answer{say(refused), say(read), say(refused, read), say(refused), say(read), say(refused), say(refused), say("done")}, domain.OutcomeError, 7},
		"all in one answer":      {[]answer{say(refused, refused, refused, refused, refused, refused), say("done")}, domain.OutcomeSuccess, 2},
		"other ones between":     {[]answer{say(refused), say(refused), say(other), say(refused), say(refused), say(other), say(refused), say("done")}, domain.OutcomeSuccess, 8},
		"the last of five other": {[]answer{say(refused), say(refused), say(refused), say(refused), say(refused, other), say("done")}, domain.OutcomeSuccess, 6},
	} {
		t.Run(name, func(t *testing.T) {
			b := newFileTools(t, c.turns...)
			res := b.run(t, t.Context())
			if res.Outcome != c.outcome || len(b.model.requests) != c.steps {
				t.Fatalf("%d requests: %+v", len(b.model.requests), res)
			}

			told := 0
			for _, s := range b.log.steps {
				told += strings.Count(strings.Join(s.Notices, "\n"), "After 5 refusals in a row the run ends.")
			}
			if want := name == "five times" || name == "four times" || name == "with reads between" || name == "the last of five other"; (told == 1) != want {
				t.Errorf("told %d times", told)
			}
			if c.outcome != domain.OutcomeError {
				return
			}
			for _, part := range []string{"5 times in a row", `nope {"a":1,"b":2}`, `there is no tool "nope" here`} {
				if !strings.Contains(res.Error, part) {
					t.Errorf("%q does not say %q", res.Error, part)
				}
			}
			if res.Exit != domain.ExitToolRejected || res.Kind != "repeated refusal" {
				t.Errorf("%+v", res)
			}
		})
	}
}
