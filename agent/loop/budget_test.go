package loop_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"rouse/agent/loop"
	"rouse/agent/model"
	"rouse/internal/domain"
)

// till is a Budget that records its calls.
type till struct {
	log  *fakeRecorder
	room int // number of granted reservations
	fail string
	held map[int64]model.Usage
}

func (b *till) Reserve(_ context.Context, step int, most model.Usage) (int64, error) {
	if b.fail == "reserve" {
		return 0, errors.New("the disk is full")
	}
	if b.room--; b.room < 0 {
		return 0, cause{"budget_exceeded"}
	}

	id := int64(len(b.held) + 1)
	b.held[id] = most
	return id, b.log.add("reserve for step %d", step)
}

// Settle charges one per input token and ten per output token.
func (b *till) Settle(_ context.Context, id int64, used loop.Settlement) (loop.Spent, error) {
	if b.fail == "settle" {
		return loop.Spent{}, errors.New("the disk is full")
	}

	said := fmt.Sprintf("settle %d", used.Reported.Input)
	if e := used.Estimated; e != (model.Usage{}) {
		said += fmt.Sprintf(", estimated %d requests and %d", e.Input/b.held[id].Input, e.Output)
	}

	e := used.Estimated.Input + 10*used.Estimated.Output
	return loop.Spent{Usage: model.Usage{Input: used.Reported.Input + used.Estimated.Input, Output: used.Reported.Output + used.Estimated.Output},
		CostMicroUSD: used.Reported.Input + e, EstimatedTokens: used.Estimated.Input + used.Estimated.Output, EstimatedMicroUSD: e}, b.log.add("%s", said)
}

func tilled(t *testing.T, room int, turns ...func(model.Request) []any) (*bench, *till) {
	b := setup(t, turns...)
	purse := &till{log: b.log, room: room, held: map[int64]model.Usage{}}
	b.o.Budget, b.o.MaxOutput = purse, 50
	return b, purse
}

// TestBudgetOrder checks that each try has a reservation and a settlement: with the reported usage,
// with zero after a rejection, or otherwise with an estimate.
func TestBudgetOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, purse := tilled(t, 9,
			say(&model.Error{Kind: model.KindUnavailable, Message: "503", Retryable: true, Refused: true}),
			say("half", &model.Error{Kind: model.KindTruncated, Message: "broke off", Retryable: true}),
			say(call("read", "{}"), model.Usage{Input: 5, Output: 1}),
			say("half", &model.Error{Kind: model.KindRateLimited, Message: "too much", Retryable: true}),
			say(&model.Error{Kind: model.KindUnavailable, Message: "no such host", Retryable: true, Err: fmt.Errorf("%w", &net.OpError{Op: "dial", Err: errors.New("refused")})}),
			say(&model.Error{Kind: model.KindUnavailable, Message: "silent", Retryable: true}),
			say("end", model.Usage{Input: 6}))

		res := b.run(t, t.Context())
		want := `reserve for step 1
step 1 begins
settle 0
reserve for step 1
settle 0, estimated 1 requests and 1
reserve for step 1
settle 5
step 1 ends
read begins
read is done
reserve for step 2
step 2 begins
settle 0, estimated 1 requests and 1
reserve for step 2
settle 0
reserve for step 2
settle 0, estimated 1 requests and 0
reserve for step 2
settle 6
step 2 ends`
		if got := strings.Join(b.log.lines, "\n"); got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
		one, two := purse.held[2].Input, purse.held[4].Input
		if res.EstimatedMicroUSD != one+2*two+2*10 || res.CostMicroUSD != 5+6+res.EstimatedMicroUSD || res.EstimatedTokens != one+2*two+2 || res.Usage.Output != 1+2 {
			t.Errorf("%+v %+v", res, b.log.steps)
		}
		if s := b.log.steps[0].Spent; s.EstimatedMicroUSD != one+10 || s.CostMicroUSD != 5+one+10 || s.EstimatedTokens != one+1 {
			t.Errorf("step 1: %+v", s)
		}
		if first, want := purse.held[1], inputOf(b.model.requests[0]); first.Output != 50 || first.Input != want {
			t.Errorf("the estimate is %+v, want an input of %d", first, want)
		}
		if after, want := purse.held[4], inputOf(b.model.requests[3]); after.Input != want || want <= purse.held[1].Input {
			t.Errorf("the estimate of the second step is %+v, want an input of %d", after, want)
		}
	})
}

// inputOf estimates a request: four bytes per token, and four tokens for each message and tool.
func inputOf(r model.Request) (n int64) {
	tokens := func(bytes int) int64 { return int64((bytes + 3) / 4) }
	n = tokens(len(r.System))
	for _, t := range r.Tools {
		n += tokens(len(t.Name)+len(t.Description)+len(t.Schema)) + 4
	}
	for _, m := range r.Messages {
		bytes := len(m.Text) + len(m.Raw)
		for _, c := range m.Calls {
			bytes += len(c.Name) + len(c.Args) + len(c.ID)
		}
		n += tokens(bytes) + 4
	}
	return n
}

// TestBoundsAreInclusive checks that a run may use exactly its bounds.
func TestBoundsAreInclusive(t *testing.T) {
	turns := []func(model.Request) []any{say("reading", call("read", `{"a":1}`), model.Usage{Input: 90, Output: 20}), say("end", model.Usage{Input: 100, Output: 3})}
	written := int64(len("reading") + len(`{"a":1}`) + len("end"))
	for name, c := range map[string]struct {
		bounds loop.Bounds
		want   domain.Outcome
		why    string
	}{
		"tokens":        {loop.Bounds{Tokens: 110}, domain.OutcomeSuccess, ""},
		"a token less":  {loop.Bounds{Tokens: 109}, domain.OutcomeBudget, "110 tokens"},
		"bytes written": {loop.Bounds{Output: written}, domain.OutcomeSuccess, ""},
		"a byte less":   {loop.Bounds{Output: written - 1}, domain.OutcomeBudget, fmt.Sprintf("more than the %d bytes", written-1)},
	} {
		t.Run(name, func(t *testing.T) {
			b := setup(t, turns...)
			b.o.Bounds.Tokens, b.o.Bounds.Output = c.bounds.Tokens, c.bounds.Output
			if res := b.run(t, t.Context()); res.Outcome != c.want || !strings.Contains(res.Error, c.why) {
				t.Errorf("%s: %s", res.Outcome, res.Error)
			}
		})
	}
}

// TestBudgetOfABrokenCall checks that the name and arguments of a call in a broken stream are
// charged like text.
func TestBudgetOfABrokenCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		args := `{"text":"` + strings.Repeat("x", 400) + `"}`
		b, _ := tilled(t, 9, say("four", call("read", args), &model.Error{Kind: model.KindTruncated, Message: "broke off", Retryable: true}), say("end", model.Usage{Input: 6}))
		b.run(t, t.Context())
		want := fmt.Sprintf("settle 0, estimated 1 requests and %d", (len("four")+len("read")+len(args)+3)/4)
		if !slices.Contains(b.log.lines, want) {
			t.Errorf("%q is not in\n%s", want, strings.Join(b.log.lines, "\n"))
		}
	})
}

// TestBudgetRefuses checks that a refusal ends the run before the turn, with its message.
func TestBudgetRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for room, steps := range []int{0, 1, 2} {
			b, _ := tilled(t, room, say(call("read", "{}"), model.Usage{Input: 5}), say(&model.Error{Kind: model.KindInvalidResponse, Message: "odd", Retryable: true}))
			want := map[int]string{0: "stopped", 1: "stopped", 2: "odd; and there is no budget to ask again: stopped"}[room]
			res := b.run(t, t.Context())
			if res.Exit != domain.ExitCancelled || res.Outcome != "budget_exceeded" || res.Error != want || res.Steps != steps || len(b.model.requests) != room {
				t.Errorf("room for %d: %+v, %d requests", room, res, len(b.model.requests))
			}
		}
	})
}

// TestBudgetOfNothing checks that a reported usage of zero counts as not reported.
func TestBudgetOfNothing(t *testing.T) {
	b, _ := tilled(t, 1, say("end", model.Usage{}))
	if res := b.run(t, t.Context()); res.Usage.Output != 1 || res.EstimatedTokens != res.Usage.Input+1 || res.EstimatedMicroUSD != res.CostMicroUSD {
		t.Errorf("%+v", res)
	}
}

// TestBudgetOfAnAnswerWithoutBound checks that without a limit an answer may use all the space
// reserved for it.
func TestBudgetOfAnAnswerWithoutBound(t *testing.T) {
	b, purse := tilled(t, 1, say("end", model.Usage{Input: 6}))
	b.o.MaxOutput = 0
	b.run(t, t.Context())
	room := func(answer int) int { return loop.HistoryRoom(20_000, answer, 0) }
	if most := int(purse.held[1].Output); most <= 0 || room(most) != room(0) || room(most-1) == room(0) {
		t.Errorf("%d tokens are reserved", most)
	}
}

// TestBudgetBroken checks that a budget that fails is an error of the host, not of the model.
func TestBudgetBroken(t *testing.T) {
	for _, where := range []string{"reserve", "settle"} {
		b, purse := tilled(t, 9, say("end"))
		purse.fail = where
		if _, err := loop.Run(t.Context(), b.o); err == nil || !strings.Contains(err.Error(), "disk is full") {
			t.Errorf("%s: %v", where, err)
		}
	}
}

// TestUnreportedRequests checks the estimate for requests without a reported usage: the input of
// each, or the input reported so far, and the part of the answer that arrived.
func TestUnreportedRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lost := &model.Error{Kind: model.KindUnavailable, Message: "closed", Retryable: true}
		b, purse := tilled(t, 9,
			say(model.Unreported{Requests: 4}, lost),
			say(model.Unreported{}, lost), // the request did not reach the server
			say(model.Unreported{Requests: 2, Bytes: 80, Begun: model.Usage{Input: 3, Output: 2}}, lost),
			say(model.Unreported{Requests: 1}, "end", model.Usage{Input: 7, Output: 5}))
		res := b.run(t, t.Context())
		most := purse.held[1].Input
		if want := 4*most + 0 + (most + 3 + 20) + purse.held[4].Input; res.EstimatedTokens != want || res.Usage.Input+res.Usage.Output != want+7+5 {
			t.Errorf("%+v, want %d estimated", res.Spent, want)
		}
	})
}

// TestFailureBeforeWall checks that a run that times out during a retry reports the failure first.
func TestFailureBeforeWall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, say(&model.Error{Kind: model.KindUnavailable, Message: "the server is down", Retryable: true}))
		b.o.Bounds.Wall = 2 * time.Second
		if res := b.run(t, t.Context()); res.Outcome != "timeout" || res.Error != "the server is down; and the run took longer than its wall time of 2s" {
			t.Errorf("%+v", res)
		}
	})
}
