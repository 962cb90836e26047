package web

import (
	"context"
	"errors"
	"net/http"

	"rouse/agentdb/ledger"
	"rouse/cmd/internal/api"
)

func (s *Server) signInRoutes() []Route {
	return []Route{
		get[[]api.SignIn]("/v1/sign-ins", "The sign-ins of skills; never a token.", s.answer(asked(s.backend.SignIns))),
		post[api.SignInName, api.SignInName]("/v1/sign-ins/remove", "Forgets a sign-in of a skill.", s.answer(withBody(s.removeSignIn))),
	}
}

func (s *Server) removeSignIn(r *http.Request, in api.SignInName) (any, error) {
	return in, s.backend.RemoveSignIn(r.Context(), in.Name)
}

// withLink adds to an item where its owner signs in: that is in no record, and made for who looks.
func (s *Server) withLink(ctx context.Context, out api.Item, i ledger.Item) api.Item {
	link, err := s.backend.SignInLink(ctx, i)
	out.Link = link
	if err != nil {
		out.LinkProblem = err.Error()
	}
	return out
}

// takeSignIn gives an answer to who signs in, where an item asks for that.
func (s *Server) takeSignIn(ctx context.Context, i ledger.Item, pasted string) (taken bool, err error) {
	taken, err = s.backend.AnswerSignIn(ctx, i, pasted)
	if err != nil && !errors.As(err, new(*api.Error)) {
		err = &api.Error{Status: http.StatusUnprocessableEntity, Message: err.Error()}
	}
	return taken, err
}
