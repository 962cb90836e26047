package tool_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"rouse/agent/tool"
	"rouse/internal/contract"
	"rouse/internal/domain"
)

// TestAuthorizer checks every combination of a call's Access, the run's taint, the owner's settings
// and the owner's decision (UNI-06). The verdict must follow the rules in security.md.
func TestAuthorizer(t *testing.T) {
	row := contract.Of(t, "UNI-06")
	modes := []string{"", row.Quote("park"), row.Quote("fail"), row.Quote("continue")}
	saids := []tool.OwnerDecision{{}, {Standing: true}, {Once: true}, {Denied: true, Reason: "no"}, {Standing: true, Denied: true}}
	refused := tool.Failure(tool.KindInvalidArgs, "no such thing")
	n := 0
	for _, deny := range []*tool.Envelope{nil, &refused} {
		for _, missing := range []string{"", "no grant covers it"} {
			for _, asks := range []string{"", "asks", "each"} {
				for _, tier := range []string{"", "A", "B", "D"} {
					for _, least := range []string{"", "A", "D"} {
						for taint := tool.Taint(0); taint <= tool.AllTaints; taint++ {
							for adds := tool.Taint(0); adds <= tool.AllTaints; adds++ {
								for _, onDenied := range modes {
									for _, said := range saids {
										n++
										need := tool.Access{Refused: deny, MissingGrant: missing, NeedsApproval: asks == "asks", NoStandingApproval: asks == "each", Tier: tier, AddsTaint: adds, Action: "x", Shown: "do x"}
										asked := false
										v, err := tool.Authorizer{Agent: "a", OnDenied: onDenied, MinTier: least}.Decide("send", need, taint, func(string) (tool.OwnerDecision, error) { asked = true; return said, nil })
										if err != nil {
											t.Fatal(err)
										}
										if got, want := verdict(v), wanted(need, least, onDenied, taint, said); got != want {
											t.Fatalf("need %+v, at least %q, on_denied %q, taint %q, answer %+v: %s, want %s", need, least, onDenied, taint, said, got, want)
										}
										if asked && missing == "" && asks == "" && (taint|adds != tool.AllTaints || adds == 0) {
											t.Fatalf("the owner's answer was looked up in vain: %+v", need)
										}
									}
								}
							}
						}
					}
				}
			}
		}
	}

	t.Logf("%d cases", n)
}

func verdict(v tool.Verdict) string {
	switch {
	case v.Ask != nil && v.Refusal == nil && !v.Denied:
		return "ask"
	case v.Refusal != nil && v.Refusal.Tool == "send":
		return fmt.Sprintf("%s %v", v.Refusal.Kind, v.Denied)
	case v == tool.Verdict{Approved: v.Approved}:
		return "go"
	}
	return fmt.Sprintf("%+v", v)
}

// wanted returns the verdict by the documented rules, applied one after the other.
func wanted(n tool.Access, least, onDenied string, taint tool.Taint, s tool.OwnerDecision) string {
	if n.Refused != nil { // deny
		return "invalid_args false"
	}

	approved := (s.Standing && !n.NoStandingApproval) || s.Once
	refusal := map[string]string{"fail": "rejected true", "continue": "rejected false"}[onDenied]
	holds := (taint | n.AddsTaint).String() == "ABC"
	third := holds && taint.String() != "ABC"
	outward := holds && strings.Contains(n.AddsTaint.String(), "C")
	needsApproval := n.MissingGrant != "" || n.NeedsApproval || n.NoStandingApproval || third || outward
	if needsApproval && !approved && s.Denied {
		return "user_denied true"
	}
	if n.MissingGrant != "" && !approved && refusal != "" { // grant
		return refusal
	}

	order := "ABCD"
	if least == "" {
		least = "B"
		if strings.Contains((taint | n.AddsTaint).String(), "A") {
			least = "A"
		}
	}
	if n.Tier != "" && strings.Index(order, n.Tier) > strings.Index(order, least) { // tier
		return "rejected false"
	}

	switch { // approval
	case !needsApproval || approved:
		return "go"
	case refusal != "":
		return refusal
	}

	return "ask"
}

// TestActionHash checks that different agents, tools and actions have different hashes, even if
// their concatenations are equal.
func TestActionHash(t *testing.T) {
	seen := map[string]string{}
	for _, parts := range [][3]string{{"a", "t", "x"}, {"at", "", "x"}, {"a", "tx", ""}, {"b", "t", "x"}, {"a", "u", "x"}, {"a", "t", "x "}, {"a", "t", ""}, {"a", "1:t,1:x", ""}} {
		h := tool.ActionHash(parts[0], parts[1], parts[2])
		if other, twice := seen[h]; twice || len(h) != 64 {
			t.Errorf("%q and %s have the hash %s", parts, other, h)
		}
		seen[h] = fmt.Sprintf("%q", parts)
	}
}

// TestApprovalSays checks that an approval request contains the action and the reasons.
func TestApprovalSays(t *testing.T) {
	n := tool.Access{MissingGrant: "no grant covers mail", AddsTaint: tool.Outward, Action: "to bob", Shown: "mail bob"}
	v, err := tool.Authorizer{Agent: "a"}.Decide("send", n, tool.Untrusted|tool.Private, func(hash string) (tool.OwnerDecision, error) {
		if hash != tool.ActionHash("a", "send", "to bob") {
			t.Errorf("asked about %s", hash)
		}
		return tool.OwnerDecision{}, nil
	})
	if err != nil || v.Ask == nil || v.Ask.Shown != "mail bob" || v.Ask.Tool != "send" || !strings.Contains(v.Ask.Why, "no grant covers mail") || !strings.Contains(v.Ask.Why, "untrusted content (earlier in this run)") {
		t.Errorf("%+v %v", v.Ask, err)
	}

	n = tool.Access{Tier: "D"}
	v, err = tool.Authorizer{Agent: "a"}.Decide("send", n, tool.Untrusted, nil)
	if err != nil || v.Refusal == nil || !strings.Contains(v.Refusal.Message, "tier D here") || !strings.Contains(v.Refusal.Message, "tier A at least") {
		t.Errorf("%+v %v", v, err)
	}
}

// TestBind checks that Bind is called only if an approval is needed, and that its result is used.
func TestBind(t *testing.T) {
	t.Parallel()
	bound := 0
	need := tool.Access{Action: "x", Shown: "do x", Bind: func(n tool.Access) (tool.Access, error) {
		bound++
		n.Action, n.Shown, n.NoStandingApproval = "x with y", "do x with y", true
		return n, nil
	}}
	decide := func(n tool.Access, said tool.OwnerDecision) (v tool.Verdict, hash string) {
		t.Helper()
		v, err := tool.Authorizer{Agent: "a"}.Decide("send", n, 0, func(h string) (tool.OwnerDecision, error) { hash = h; return said, nil })
		if err != nil {
			t.Fatal(err)
		}
		return v, hash
	}
	if v, _ := decide(need, tool.OwnerDecision{}); v != (tool.Verdict{}) || bound != 0 {
		t.Errorf("without a question: %+v, bound %d times", v, bound)
	}

	need.MissingGrant = "no grant"
	want := tool.ActionHash("a", "send", "x with y")
	if v, hash := decide(need, tool.OwnerDecision{Standing: true}); hash != want || v.Ask == nil || v.Ask.Shown != "do x with y" || v.Ask.Hash != want || !v.Ask.NoStandingApproval || v.Ask.Why != "no grant" {
		t.Errorf("%+v", v)
	}
	if v, _ := decide(need, tool.OwnerDecision{Once: true}); v.Approved != want || v.Ask != nil {
		t.Errorf("%+v", v)
	}

	refused := tool.Failure(tool.KindRejected, "a link")
	need.Bind = func(tool.Access) (tool.Access, error) { return tool.Access{Refused: &refused}, nil }
	if v, _ := decide(need, tool.OwnerDecision{Once: true}); v.Refusal == nil || v.Refusal.Message != "a link" {
		t.Errorf("%+v", v)
	}
}

// TestActionOfArguments checks that the normalized arguments identify the action if the Access has
// no Action. A standing approval for one path must not cover another path.
func TestActionOfArguments(t *testing.T) {
	t.Parallel()
	spec := tool.Spec{Name: "look", Description: "looks", Effect: domain.EffectRead, Class: tool.ClassRead}
	spec.Access = tool.AccessOf(func(context.Context, tool.Invocation, struct{}) (tool.Access, error) {
		return tool.Access{AddsTaint: tool.AllTaints}, nil
	})
	look, err := tool.Define(spec, func(context.Context, tool.Invocation, struct {
		Path string `json:"path"`
		Line int    `json:"line,omitempty"`
	}) (tool.Envelope, error) {
		return tool.Success(nil), nil
	})
	if err != nil {
		t.Fatal(err)
	}

	action := func(args string) string {
		n, err := look.Access(t.Context(), tool.Invocation{}, []byte(args))
		if err != nil || n.Action == "" {
			t.Fatalf("%s: %+v %v", args, n, err)
		}
		return n.Action
	}
	if a, b := action(`{"path":"a.txt","line":1}`), action(`{ "line": "1", "path":"a.txt"}`); a != b {
		t.Errorf("%s and %s", a, b)
	}
	if action(`{"path":"a.txt"}`) == action(`{"path":"b.txt"}`) {
		t.Error("two paths are one action")
	}
}

// TestNeed checks that Spec.Access is called even if the tool is Confined (UNI-06). A tool without
// Access that is not Confined needs an approval for each call and adds all labels.
func TestNeed(t *testing.T) {
	t.Parallel()
	says := func(n tool.Access) func(context.Context, tool.Invocation, json.RawMessage) (tool.Access, error) {
		return func(context.Context, tool.Invocation, json.RawMessage) (tool.Access, error) { return n, nil }
	}
	type path struct {
		Path string `json:"path"`
	}
	first := tool.AccessOf(func(_ context.Context, _ tool.Invocation, a path) (tool.Access, error) {
		if a.Path == "link" {
			return tool.Access{}, tool.Refuse(tool.KindInvalidArgs, "a link")
		}
		return tool.Access{MissingGrant: "its own"}, nil
	})

	for name, c := range map[string]struct {
		scope   tool.Scope
		needs   func(context.Context, tool.Invocation, json.RawMessage) (tool.Access, error)
		args    string
		missing string
		adds    tool.Taint
		refused bool
	}{
		"confined":          {tool.ScopeAgent, nil, `{"path":"x"}`, "", 0, false},
		"confined, says":    {tool.ScopeAgent, says(tool.Access{MissingGrant: "its own"}), `{"path":"x"}`, "its own", 0, false},
		"unknown":           {tool.ScopeOutside, nil, `{"path":"x"}`, "no grant covers look, which may do anything", tool.AllTaints, false},
		"judged elsewhere":  {tool.ScopeOutside, tool.NoNeeds, `{"path":"x"}`, "", 0, false},
		"unknown, unfit":    {tool.ScopeOutside, nil, `{"path":1,"more":2}`, "", 0, false},
		"refused first":     {tool.ScopeOutside, first, `{"path":"link"}`, "", 0, true},
		"not refused first": {tool.ScopeOutside, first, `{"path":"x"}`, "its own", 0, false},
	} {
		look, err := tool.Define(tool.Spec{Name: "look", Description: "looks", Effect: domain.EffectRead, Class: tool.ClassRead, Scope: c.scope, Access: c.needs},
			func(context.Context, tool.Invocation, path) (tool.Envelope, error) { return tool.Success(nil), nil })
		if err != nil {
			t.Fatal(err)
		}
		n, err := look.Access(t.Context(), tool.Invocation{}, []byte(c.args))
		if err != nil || n.MissingGrant != c.missing || n.AddsTaint != c.adds || (n.Refused != nil) != c.refused {
			t.Errorf("%s: %+v (%v)", name, n, err)
		}
	}
}

// TestDenialSays checks that a denial contains the owner's reason, if any.
func TestDenialSays(t *testing.T) {
	t.Parallel()
	for reason, want := range map[string]string{"": "the owner of this agent does not allow it", "not today": "the owner of this agent does not allow it: not today"} {
		v, err := tool.Authorizer{Agent: "a"}.Decide("look", tool.Access{MissingGrant: "none"}, 0, func(string) (tool.OwnerDecision, error) {
			return tool.OwnerDecision{Denied: true, Reason: reason}, nil
		})
		if err != nil || v.Refusal == nil || v.Refusal.Message != want {
			t.Errorf("%q: %+v (%v)", reason, v.Refusal, err)
		}
	}
}
