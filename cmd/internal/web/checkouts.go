package web

import (
	"context"
	"fmt"
	"net/http"

	"rouse/agentdb/ledger"
	"rouse/cmd/internal/api"
	"rouse/internal/domain"
)

// Checkouts are the private clones of runs.
type Checkouts interface {
	// Checkout returns the checkout of a run, nil if it has none; with diff also its changes.
	Checkout(ctx context.Context, run ledger.Run, diff bool) (*api.Checkout, error)
	// Waiting returns the checkouts whose branches wait to be applied or discarded.
	WaitingCheckouts(ctx context.Context) ([]api.Checkout, error)
	Apply(ctx context.Context, run ledger.Run, ask api.ApplyRequest) (api.Checkout, error)
	Discard(ctx context.Context, run ledger.Run) (api.Checkout, error)
}

func (s *server) checkoutRoutes() []Route {
	return []Route{
		get[[]api.Checkout]("/v1/checkouts", "Branches of runs that wait to be applied or discarded.", s.answer(s.waitingCheckouts)),
		get[api.Checkout]("/v1/runs/{id}/checkout", "The private clone of a run, its branch and its changes.", s.answer(s.checkout)),
		post[api.ApplyRequest, api.Checkout]("/v1/runs/{id}/apply", "Puts the commits of a finished run on the branch that it began from.", s.answer(s.apply)),
		post[api.Nothing, api.Checkout]("/v1/runs/{id}/discard", "Removes the clone and the branch of a finished run.", s.answer(s.discard)),
	}
}

func (s *server) waitingCheckouts(r *http.Request) (any, error) {
	return s.backend.Checkouts.WaitingCheckouts(r.Context())
}

// runOf is the run that a request names.
func (s *server) runOf(r *http.Request) (ledger.Run, error) {
	id, err := runID(r.PathValue("id"))
	if err != nil {
		return ledger.Run{}, err
	}
	return s.ledger.Run(r.Context(), id)
}

func (s *server) checkout(r *http.Request) (any, error) {
	run, err := s.runOf(r)
	if err != nil {
		return nil, err
	}
	return s.checkoutOf(r.Context(), run.ID)
}

// checkoutOf is the checkout of a run with its changes.
func (s *server) checkoutOf(ctx context.Context, id int64) (api.Checkout, error) {
	run, err := s.ledger.Run(ctx, id)
	if err != nil {
		return api.Checkout{}, err
	}
	c, err := s.backend.Checkouts.Checkout(ctx, run, true)
	if err == nil && c == nil {
		err = &api.Error{Status: http.StatusNotFound, Message: fmt.Sprintf("run %d has no checkout, or it was discarded", run.ID)}
	}
	if err != nil {
		return api.Checkout{}, err
	}
	return *c, nil
}

func (s *server) apply(r *http.Request) (any, error) {
	var ask api.ApplyRequest
	if err := read(r, &ask); err != nil {
		return nil, err
	}
	id, err := runID(r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	return s.applyRun(r.Context(), id, ask)
}

func (s *server) applyRun(ctx context.Context, id int64, ask api.ApplyRequest) (api.Checkout, error) {
	run, err := s.finishedRun(ctx, id)
	if err != nil {
		return api.Checkout{}, err
	}
	return s.backend.Checkouts.Apply(ctx, run, ask)
}

func (s *server) discard(r *http.Request) (any, error) {
	id, err := runID(r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	return s.discardRun(r.Context(), id)
}

func (s *server) discardRun(ctx context.Context, id int64) (api.Checkout, error) {
	run, err := s.finishedRun(ctx, id)
	if err != nil {
		return api.Checkout{}, err
	}
	return s.backend.Checkouts.Discard(ctx, run)
}

func (s *server) finishedRun(ctx context.Context, id int64) (ledger.Run, error) {
	run, err := s.ledger.Run(ctx, id)
	if err == nil && run.State != domain.StateFinished {
		err = &api.Error{Status: http.StatusConflict, Message: fmt.Sprintf("run %d has not finished (%s); cancel it first, or wait", id, run.State)}
	}
	return run, err
}
