package web

import (
	"context"
	"fmt"
	"net/http"

	"rouse/agentdb/ledger"
	"rouse/cmd/internal/api"
	"rouse/internal/domain"
)

func (s *Server) checkoutRoutes() []Route {
	return []Route{
		get[[]api.Checkout]("/v1/checkouts", "Branches of runs that wait to be applied or discarded.", s.answer(asked(s.backend.WaitingCheckouts))),
		get[api.Checkout]("/v1/runs/{id}/checkout", "The private clone of a run, its branch and its changes.", s.answer(withRun(s.Checkout))),
		post[api.ApplyRequest, api.Checkout]("/v1/runs/{id}/apply", "Puts the commits of a finished run on the branch that it began from.", s.answer(withIDBody("a run", "rouse runs", s.Apply))),
		post[api.Nothing, api.Checkout]("/v1/runs/{id}/discard", "Removes the clone and the branch of a finished run.", s.answer(withRun(s.Discard))),
	}
}

// Checkout is the private clone of a run, with its changes.
func (s *Server) Checkout(ctx context.Context, id int64) (api.Checkout, error) {
	run, err := s.ledger.Run(ctx, id)
	if err != nil {
		return api.Checkout{}, err
	}
	c, err := s.backend.Checkout(ctx, run, true)
	if err == nil && c == nil {
		err = &api.Error{Status: http.StatusNotFound, Message: fmt.Sprintf("run %d has no checkout, or it was discarded", run.ID)}
	}
	if err != nil {
		return api.Checkout{}, err
	}
	return *c, nil
}

// Apply puts the commits of a run on the branch that it began from.
func (s *Server) Apply(ctx context.Context, id int64, ask api.ApplyRequest) (api.Checkout, error) {
	run, err := s.finishedRun(ctx, id)
	if err != nil {
		return api.Checkout{}, err
	}
	return s.backend.Apply(ctx, run, ask)
}

// Discard removes the clone and the branch of a run.
func (s *Server) Discard(ctx context.Context, id int64) (api.Checkout, error) {
	run, err := s.finishedRun(ctx, id)
	if err != nil {
		return api.Checkout{}, err
	}
	return s.backend.Discard(ctx, run)
}

func (s *Server) finishedRun(ctx context.Context, id int64) (ledger.Run, error) {
	run, err := s.ledger.Run(ctx, id)
	if err == nil && run.State != domain.StateFinished {
		err = conflict("run %d has not finished (%s); cancel it first, or wait", id, run.State)
	}
	return run, err
}
