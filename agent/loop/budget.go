package loop

import (
	"context"
	"errors"
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
	// Settle releases what was not used, and returns what was, and its cost. used is nil when
	// nobody reported it; all that was reserved counts as used then.
	Settle(ctx context.Context, id int64, used *model.Usage) (took model.Usage, costMicroUSD int64, err error)
}

// reserve reserves the next turn. A refusal ends the run and is shown to its owner.
func (r *run) reserve(ctx context.Context, step int, noTools bool) (id int64, refusal, err error) {
	if r.Budget == nil {
		return 0, nil, nil
	}

	id, err = r.Budget.Reserve(ctx, step, r.maxUsage(noTools))
	var withOutcome interface{ Outcome() domain.Outcome }
	if errors.As(err, &withOutcome) {
		return 0, err, nil
	}
	return id, nil, err
}

// maxUsage estimates what a turn uses at most: its request, and an answer of the greatest length.
// Without such a limit the answer is taken to be as long as the room that the window keeps for it.
func (r *run) maxUsage(noTools bool) model.Usage {
	req := r.request(noTools)
	n := tokens(len(req.System))
	for _, t := range req.Tools {
		n += tokens(len(t.Name)+len(t.Description)+len(t.Schema)) + perMessage
	}

	for _, m := range req.Messages {
		n += size(m)
	}

	answer := req.MaxOutput
	if answer <= 0 {
		answer = defaultResponse
	}

	return model.Usage{Input: int64(n), Output: int64(answer)}
}

// settle bills a try: what the server reported, nothing when it refused to answer, and else what
// was reserved.
func (r *run) settle(ctx context.Context, id int64, t *turn, failure error) error {
	if r.Budget == nil {
		return nil
	}

	// A usage of zero means that the server did not count, not that it was free.
	var used *model.Usage
	counted := t.counted && t.usage != model.Usage{}
	if counted || (!t.started && notBilled(failure)) {
		used = &t.usage
	}

	var err error
	t.usage, t.cost, err = r.Budget.Settle(ctx, id, used)
	return err
}

// notBilled says whether a try failed before the model can have begun to answer, so that it cost
// nothing.
func notBilled(failure error) bool {
	var dialled *net.OpError
	if errors.As(failure, &dialled) && dialled.Op == "dial" {
		return true
	}

	var e *model.Error
	if !errors.As(failure, &e) {
		return false
	}

	switch e.Kind {
	case model.KindAuth, model.KindRateLimited, model.KindBadRequest, model.KindContextOverflow:
		return true
	}

	return e.Refused
}
