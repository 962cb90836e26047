package loop

import (
	"context"
	"errors"
	"net"

	"rouse/agent/model"
	"rouse/internal/domain"
)

// reserve asks for room for the turn that comes next. refusal is for the run's owner.
func (r *run) reserve(ctx context.Context, step int, noTools bool) (id int64, refusal, err error) {
	if r.Budget == nil {
		return 0, nil, nil
	}

	id, err = r.Budget.Reserve(ctx, step, r.most(noTools))
	var why interface{ Outcome() domain.Outcome }
	if errors.As(err, &why) {
		return 0, err, nil
	}
	return id, nil, err
}

// most is what a turn is expected to take at most: its request, and an answer as long as it
// may be. A model that has no such limit is believed to keep to what is reserved of its
// context for an answer.
func (r *run) most(noTools bool) model.Usage {
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

// settle counts what a try took: what the server said, nothing when it refused to answer,
// and else what was reserved. A server that says that it was nothing has not counted.
func (r *run) settle(ctx context.Context, id int64, t *turn, failure error) error {
	if r.Budget == nil {
		return nil
	}

	var used *model.Usage
	counted := t.counted && t.usage != model.Usage{}
	if counted || (!t.heard && refused(failure)) {
		used = &t.usage
	}

	var err error
	t.usage, t.cost, err = r.Budget.Settle(ctx, id, used)
	return err
}

// refused says whether a try failed before the model can have begun to answer, so that
// nothing is paid for it.
func refused(failure error) bool {
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
