package web

import (
	"context"
	"net/http"

	"rouse/cmd/internal/api"
)

// Access lets browsers and programs in that do not come through the socket.
type Access interface {
	Access(ctx context.Context) (api.Access, error)
	// Login makes a link that logs a browser in once, and leads to a page.
	Login(ctx context.Context, path string) (api.Login, error)
	// EndSession logs a browser out.
	EndSession(ctx context.Context, id string) error
	// RotateToken makes another token and logs everybody out.
	RotateToken(ctx context.Context) error
}

// accessRoutes are for who holds the home: who was let in must not let others in, nor himself for longer.
func (s *server) accessRoutes() []Route {
	return local(
		get[api.Access]("/v1/access", "Where the pages are, and who is logged in.", s.answer(s.access)),
		post[api.LoginRequest, api.Login]("/v1/access/logins", "Makes a link that logs a browser in once.", s.answer(s.login)),
		post[api.Nothing, api.Access]("/v1/access/rotate", "Makes another token, and logs everybody out.", s.answer(s.rotate)),
		post[api.Nothing, api.Access]("/v1/access/sessions/{id}/end", "Logs a browser out.", s.answer(s.endSession)),
	)
}

// accessible refuses where nobody can be let in.
func (s *server) accessible() (Access, error) {
	if s.backend.Access == nil {
		return nil, &api.Error{Status: http.StatusConflict, Message: "no daemon serves this home, so that there are no pages; start one: rouse serve"}
	}
	return s.backend.Access, nil
}

func (s *server) access(r *http.Request) (any, error) {
	a, err := s.accessible()
	if err != nil {
		return nil, err
	}
	return a.Access(r.Context())
}

func (s *server) login(r *http.Request) (any, error) {
	var in api.LoginRequest
	if err := read(r, &in); err != nil {
		return nil, err
	}

	a, err := s.accessible()
	if err != nil {
		return nil, err
	}
	return a.Login(r.Context(), in.Path)
}

func (s *server) rotate(r *http.Request) (any, error) {
	a, err := s.accessible()
	if err != nil {
		return nil, err
	}
	if err := a.RotateToken(r.Context()); err != nil {
		return nil, err
	}
	return a.Access(r.Context())
}

func (s *server) endSession(r *http.Request) (any, error) {
	a, err := s.accessible()
	if err != nil {
		return nil, err
	}
	if err := a.EndSession(r.Context(), r.PathValue("id")); err != nil {
		return nil, err
	}
	return a.Access(r.Context())
}
