package loop_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"rouse/agent/loop"
	"rouse/agent/model"
	"rouse/agent/tool"
	"rouse/internal/contract"
)

// fakeAuthorizer returns a configured verdict for each tool, and records its calls.
type fakeAuthorizer struct {
	verdicts map[string]tool.Verdict // by tool; other tools are allowed
	judged   []string
	err      error
}

func (g *fakeAuthorizer) Authorize(_ context.Context, in tool.Invocation, t tool.Tool, _ json.RawMessage) (tool.Verdict, error) {
	g.judged = append(g.judged, t.Name()+" "+in.Key)
	return g.verdicts[t.Name()], g.err
}

func (g *fakeAuthorizer) OnCallsStart(context.Context) error {
	g.judged = append(g.judged, "admit")
	return nil
}

func answerWith(kind tool.Kind) tool.Verdict {
	e := tool.Failure(kind, "not this")
	return tool.Verdict{Refusal: &e, Denied: kind == tool.KindUserDenied}
}

// TestAuthorizerPhase: OSA-07, all calls of an answer are decided in the model's order before any
// is made. After a denial the later calls are refused. If a call needs an approval, no call is
// made.
func TestAuthorizerPhase(t *testing.T) {
	row := contract.Of(t, "OSA-07")
	denied := fmt.Sprintf("ok %s %s %[2]s", row.Quote("user_denied"), row.Quote("rejected"))
	ask := tool.Verdict{Ask: &tool.ApprovalRequest{Tool: "change", Hash: "h"}}
	for name, c := range map[string]struct {
		calls    []model.Call
		verdicts map[string]tool.Verdict
		made     string
		kinds    string // of the recorded envelopes
		judged   string
		asks     string // key of the call that waits for an approval
	}{
		"go":       {[]model.Call{call("read", `{}`), call("change", `{}`)}, nil, "2", "ok ok", "read m1.1.1, change m1.1.2, admit", ""},
		"refused":  {[]model.Call{call("change", `{}`), call("read", `{}`)}, map[string]tool.Verdict{"change": answerWith(tool.KindRejected)}, "1", "rejected ok", "change m1.1.1, read m1.1.2, admit", ""},
		"denied":   {[]model.Call{call("read", `{}`), call("change", `{}`), call("read", `{}`), call("nothing", `{}`)}, map[string]tool.Verdict{"change": answerWith(tool.KindUserDenied)}, "1", denied, "read m1.1.1, change m1.1.2, admit", ""},
		"asks":     {[]model.Call{call("read", `{}`), call("change", `{}`), call("read", `{}`)}, map[string]tool.Verdict{"change": ask}, "0", "", "read m1.1.1, change m1.1.2", "m1.1.2"},
		"unknown":  {[]model.Call{call("nothing", `{}`)}, nil, "0", "tool_not_found", "admit", ""},
		"behind":   {[]model.Call{call("complete", `{"bad":1}`), call("change", `{}`)}, map[string]tool.Verdict{"change": ask}, "0", "invalid_args rejected", "complete m1.1.1, change m1.1.2, admit", ""},
		"end":      {[]model.Call{call("change", `{}`), call("complete", `{"text":"x"}`)}, map[string]tool.Verdict{"change": answerWith(tool.KindUserDenied)}, "0", "user_denied rejected", "change m1.1.1, admit", ""},
		"end asks": {[]model.Call{call("complete", `{"text":"x"}`), call("change", `{}`)}, map[string]tool.Verdict{"change": ask}, "1", "ok", "complete m1.1.1, change m1.1.2, admit", ""},
	} {
		t.Run(name, func(t *testing.T) {
			var parts []any
			for _, one := range c.calls {
				parts = append(parts, one)
			}

			b, g := setup(t, say(parts...), say("end")), &fakeAuthorizer{verdicts: c.verdicts}
			b.o.Authorizer = g
			res := b.run(t, t.Context())
			var kinds []string
			for _, one := range b.log.calls {
				var e tool.Envelope
				if err := json.Unmarshal(one.Envelope, &e); err != nil {
					t.Fatal(err)
				}

				if e.OK {
					e.Kind = "ok"
				}

				kinds = append(kinds, string(e.Kind))
			}

			if c.asks == "" != (res.Approval == nil) || (res.Approval != nil && res.Approval.Call != c.asks) {
				t.Errorf("asks for %+v", res.Approval)
			}
			if got := fmt.Sprint(len(b.done)); got != c.made || ordered(kinds) != ordered(strings.Fields(c.kinds)) || strings.Join(g.judged, ", ") != c.judged {
				t.Errorf("made %s (%v), answered %v, judged %v; want %s, %s, %s", got, b.done, kinds, g.judged, c.made, c.kinds, c.judged)
			}
		})
	}
}

// ordered removes the order in which concurrent calls end.
func ordered(words []string) string {
	counts := map[string]int{}
	for _, w := range words {
		counts[w]++
	}
	return fmt.Sprint(counts)
}

// TestAuthorizerAndPriorCalls checks that a call made by an earlier attempt is not decided again,
// unless it may be repeated. A denial in an earlier attempt also applies to the calls after it.
func TestAuthorizerAndPriorCalls(t *testing.T) {
	denied, err := tool.Failure(tool.KindUserDenied, "no").MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}

	b, g := setup(t, say("end")), &fakeAuthorizer{}
	b.o.Authorizer = g
	for i, name := range []string{"read", "change", "read", "change"} {
		b.o.PendingCalls = append(b.o.PendingCalls, model.Call{ID: fmt.Sprint(i), Key: fmt.Sprintf("k%d", i), Name: name, Args: json.RawMessage(`{}`)})
	}

	b.o.PriorCalls = map[string]loop.PriorCall{"k0": {Tool: "read"}, "k1": {Tool: "change", Uncertain: true}, "k2": {Tool: "read", Envelope: denied}}
	b.run(t, t.Context())
	if got := strings.Join(g.judged, ", "); got != "read k0, admit" || strings.Join(b.done, " ") != "read k0" {
		t.Errorf("judged %s, made %v", got, b.done)
	}
}

// TestAuthorizerBehindPriorCalls checks that a call made by an earlier attempt does not deny later
// calls, whatever its result.
func TestAuthorizerBehindPriorCalls(t *testing.T) {
	failed, err := tool.Failure(tool.KindRejected, "no").MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}

	b, g := setup(t, say("end")), &fakeAuthorizer{}
	b.o.Authorizer = g
	for i, name := range []string{"change", "change", "read"} {
		b.o.PendingCalls = append(b.o.PendingCalls, model.Call{ID: fmt.Sprint(i), Key: fmt.Sprintf("k%d", i), Name: name, Args: json.RawMessage(`{}`)})
	}

	b.o.PriorCalls = map[string]loop.PriorCall{"k0": {Tool: "change", Envelope: failed}, "k1": {Tool: "change", Uncertain: true}}
	b.run(t, t.Context())
	if got := strings.Join(g.judged, ", "); got != "read k2, admit" || strings.Join(b.done, " ") != "read k2" {
		t.Errorf("judged %s, made %v", got, b.done)
	}
}

// TestAuthorizerApproved checks that an approval reaches the tool with its call and with no other
// call.
func TestAuthorizerApproved(t *testing.T) {
	b := setup(t, say(call("change", `{}`), call("read", `{}`)), say("end"))
	b.o.Authorizer = &fakeAuthorizer{verdicts: map[string]tool.Verdict{"change": {Approved: "h"}}}
	b.run(t, t.Context())
	slices.Sort(b.done)
	if got := strings.Join(b.done, ", "); got != "change m1.1.1 h, read m1.1.2" {
		t.Errorf("made %s", got)
	}
}

// TestAuthorizerBroken checks that an authorizer that fails ends the run with an error of the host,
// before any call is made.
func TestAuthorizerBroken(t *testing.T) {
	b := setup(t, say(call("read", `{}`)))
	b.o.Authorizer = &fakeAuthorizer{err: errBroken}
	if _, err := loop.Run(t.Context(), b.o); !errors.Is(err, errBroken) || len(b.done) > 0 {
		t.Errorf("%v after %v", err, b.done)
	}
}
