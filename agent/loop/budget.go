package loop

import (
	"context"
	"errors"
	"fmt"
	"net"

	"rouse/agent/model"
	"rouse/internal/domain"
)

// Budget reserves the cost of each turn of a model before it is asked, retries included, and
// settles it afterwards.
type Budget interface {
	// Reserve sets aside what a turn may use at most. A refusal is an error with an Outcome,
	// and perhaps an Exit, with which the run ends; any other error means that the host is broken.
	Reserve(ctx context.Context, step int, most model.Usage) (id int64, err error)
	// Settle releases what was not used, and returns what was.
	Settle(ctx context.Context, id int64, used Settlement) (Spent, error)
}

// Settlement is what a turn took for which a reservation was made.
type Settlement struct {
	Reported  model.Usage // by the server
	Estimated model.Usage // beside that, by what was sent and received, for nobody said
	Why       error       // what kept the server from saying, nil where it merely did not
}

// Spent is what turns took.
type Spent struct {
	Usage        model.Usage
	CostMicroUSD int64
	// The part of both that is estimated.
	EstimatedTokens, EstimatedMicroUSD int64
}

// add counts what was spent beside this.
func (s *Spent) add(o Spent) {
	s.Usage.Input += o.Usage.Input
	s.Usage.Output += o.Usage.Output
	s.Usage.Cached += o.Usage.Cached
	s.CostMicroUSD += o.CostMicroUSD
	s.EstimatedTokens += o.EstimatedTokens
	s.EstimatedMicroUSD += o.EstimatedMicroUSD
}

// reservation is what was set aside for a try.
type reservation struct {
	id   int64
	most model.Usage
}

// reserve reserves the next turn. A refusal ends the run and is shown to its owner.
func (r *run) reserve(ctx context.Context, step int, noTools bool) (held reservation, refusal, err error) {
	if r.Budget == nil {
		return held, nil, nil
	}

	held.most = r.maxUsage(noTools)
	held.id, err = r.Budget.Reserve(ctx, step, held.most)
	var withOutcome interface{ Outcome() domain.Outcome }
	if errors.As(err, &withOutcome) {
		return held, err, nil
	}
	return held, nil, err
}

// notAskedAgain is a refusal to ask again after a failure, which is told first: it is what has to be
// mended. The run ends as the refusal says.
type notAskedAgain struct{ refusal, failure error }

func (e *notAskedAgain) Error() string {
	return fmt.Sprintf("%s; and there is no budget to ask again: %s", e.failure, e.refusal)
}

func (e *notAskedAgain) Unwrap() error { return e.refusal }

// maxUsage estimates what a turn uses at most: its request, and an answer of the greatest length.
// Without such a limit the answer is taken to be as long as the room that the window keeps for it.
func (r *run) maxUsage(noTools bool) model.Usage {
	req := r.request(noTools)
	n := tokens(len(req.System)) + ToolTokens(req.Tools)
	for _, m := range req.Messages {
		n += size(m)
	}

	answer := r.MaxOutput
	if answer <= 0 {
		answer = min(defaultResponse, req.MaxOutput)
	}

	return model.Usage{Input: int64(n), Output: int64(answer)}
}

// settle bills a try: what the server reported, and beside that what was sent and received of which
// it said nothing.
func (r *run) settle(ctx context.Context, held reservation, t *turn, failure error) error {
	if r.Budget == nil {
		t.spent.Usage = t.usage
		return nil
	}

	var err error
	t.spent, err = r.Budget.Settle(ctx, held.id, Settlement{Reported: t.usage, Estimated: estimate(t.unreportedUsage(failure), held.most), Why: failure})
	return err
}

// estimate is what requests may have taken of which no usage tells: the input of each, and what has
// arrived of their answers. most is what one of them may take.
func estimate(u model.Unreported, most model.Usage) model.Usage {
	e := u.Begun
	asked := int64(u.Requests)
	if e.Input > 0 {
		asked--
	}

	e.Input += asked * most.Input
	e.Output = max(e.Output, int64(tokens(u.Bytes)))
	return e
}

// unreportedUsage is what the turn may have cost beyond its usage: as its provider says, or, where that says
// nothing, one request with what has arrived of its answer.
func (t *turn) unreportedUsage(failure error) model.Unreported {
	var dialled *net.OpError
	var e *model.Error
	// A usage of zero means that the server did not count, not that it was free.
	counted := t.usage != model.Usage{}
	switch {
	case t.unreported != nil:
		return *t.unreported
	case counted:
		return model.Unreported{}
	case !t.started && errors.As(failure, &dialled) && dialled.Op == "dial", !t.started && errors.As(failure, &e) && e.Free():
		return model.Unreported{}
	}
	return model.Unreported{Requests: 1, Bytes: t.arrived}
}
