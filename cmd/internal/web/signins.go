package web

import (
	"context"
	"errors"
	"net/http"

	"rouse/agentdb/ledger"
	"rouse/cmd/internal/api"
)

// SignIns are those of skills.
type SignIns interface {
	SignIns(ctx context.Context) ([]api.SignIn, error)
	RemoveSignIn(ctx context.Context, name string) error
	// SignInLink is the link that an item of the inbox asks its owner to open, "" where it asks for something else.
	SignInLink(ctx context.Context, i ledger.Item) (string, error)
	// AnswerSignIn signs in with what was pasted as the answer to an item; false for an item that asks for something else.
	AnswerSignIn(ctx context.Context, i ledger.Item, pasted string) (taken bool, err error)
}

func (s *server) signInRoutes() []Route {
	return []Route{
		get[[]api.SignIn]("/v1/sign-ins", "The sign-ins of skills; never a token.", s.answer(s.signIns)),
		post[api.SignInName, api.SignInName]("/v1/sign-ins/remove", "Forgets a sign-in of a skill.", s.answer(s.removeSignIn)),
	}
}

func (s *server) signIns(r *http.Request) (any, error) {
	return s.backend.SignIns.SignIns(r.Context())
}

func (s *server) removeSignIn(r *http.Request) (any, error) {
	var in api.SignInName
	if err := read(r, &in); err != nil {
		return nil, err
	}
	return in, s.backend.SignIns.RemoveSignIn(r.Context(), in.Name)
}

// withLink adds to an item where its owner signs in: that is in no record, and made for who looks.
func (s *server) withLink(ctx context.Context, out api.Item, i ledger.Item) api.Item {
	link, err := s.backend.SignIns.SignInLink(ctx, i)
	out.Link = link
	if err != nil {
		out.LinkProblem = err.Error()
	}
	return out
}

// takeSignIn gives an answer to who signs in, where an item asks for that.
func (s *server) takeSignIn(ctx context.Context, i ledger.Item, pasted string) (taken bool, err error) {
	taken, err = s.backend.SignIns.AnswerSignIn(ctx, i, pasted)
	if err != nil && !errors.As(err, new(*api.Error)) {
		err = &api.Error{Status: http.StatusUnprocessableEntity, Message: err.Error()}
	}
	return taken, err
}
