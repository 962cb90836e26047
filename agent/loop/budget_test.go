package loop_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"

	"rouse/agent/loop"
	"rouse/agent/model"
	"rouse/internal/domain"
)

// till is a Budget that writes down what it is asked.
type till struct {
	log  *fakeRecorder
	room int // reservations that it grants
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

func (b *till) Settle(_ context.Context, id int64, used *model.Usage) (model.Usage, int64, error) {
	if b.fail == "settle" {
		return model.Usage{}, 0, errors.New("the disk is full")
	}
	if used == nil {
		return b.held[id], 7, b.log.add("settle as reserved")
	}
	return *used, used.Input, b.log.add("settle %d", used.Input)
}

func tilled(t *testing.T, room int, turns ...func(model.Request) []any) (*bench, *till) {
	b := setup(t, turns...)
	purse := &till{log: b.log, room: room, held: map[int64]model.Usage{}}
	b.o.Budget, b.o.MaxOutput = purse, 50
	return b, purse
}

// Room is asked for before each try, and each is settled: with what the server said, with
// nothing when it refused, else with what was reserved.
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
settle as reserved
reserve for step 1
settle 5
step 1 ends
read begins
read is done
reserve for step 2
step 2 begins
settle as reserved
reserve for step 2
settle 0
reserve for step 2
settle as reserved
reserve for step 2
settle 6
step 2 ends`
		if got := strings.Join(b.log.lines, "\n"); got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
		if res.CostMicroUSD != 5+6+3*7 || b.log.steps[0].CostMicroUSD != 12 || b.log.steps[1].CostMicroUSD != 20 || res.Usage.Output != 1+3*50 {
			t.Errorf("%+v %+v", res, b.log.steps)
		}
		if first := purse.held[1]; first.Output != 50 || first.Input < 10 {
			t.Errorf("the estimate: %+v", first)
		}
	})
}

// A refusal ends the run before the turn, with what it says.
func TestBudgetRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for room, steps := range []int{0, 1, 2} {
			b, _ := tilled(t, room, say(call("read", "{}"), model.Usage{Input: 5}), say(&model.Error{Kind: model.KindInvalidResponse, Message: "odd", Retryable: true}))
			res := b.run(t, t.Context())
			if res.Exit != domain.ExitCancelled || res.Outcome != "budget_exceeded" || res.Error != "stopped" || res.Steps != steps || len(b.model.requests) != room {
				t.Errorf("room for %d: %+v, %d requests", room, res, len(b.model.requests))
			}
		}
	})
}

// A server that counts nothing for an answer has not counted.
func TestBudgetOfNothing(t *testing.T) {
	b, _ := tilled(t, 1, say("end", model.Usage{}))
	if res := b.run(t, t.Context()); res.Usage.Output != 50 || res.CostMicroUSD != 7 {
		t.Errorf("%+v", res)
	}
}

// A record that cannot be kept stops the host, not the model.
func TestBudgetBroken(t *testing.T) {
	for _, where := range []string{"reserve", "settle"} {
		b, purse := tilled(t, 9, say("end"))
		purse.fail = where
		if _, err := loop.Run(t.Context(), b.o); err == nil || !strings.Contains(err.Error(), "disk is full") {
			t.Errorf("%s: %v", where, err)
		}
	}
}
