package web

import (
	"net/http"

	"rouse/cmd/internal/api"
)

// accessRoutes are for who holds the home: who was let in must not let others in, nor himself for longer.
func (s *Server) accessRoutes() []Route {
	return local(
		get[api.Access]("/v1/access", "Where the pages are, and who is logged in.", s.answer(s.access)),
		post[api.LoginRequest, api.Login]("/v1/access/logins", "Makes a link that logs a browser in once.", s.answer(withBody(s.login))),
		post[api.Nothing, api.Access]("/v1/access/rotate", "Makes another token, and logs everybody out.", s.answer(s.rotate)),
		post[api.Nothing, api.Access]("/v1/access/sessions/{id}/end", "Logs a browser out.", s.answer(s.endSession)),
	)
}

// accessible returns an error if access is only possible through the socket.
func (s *Server) accessible() error {
	if !s.backend.Network {
		return &api.Error{Status: http.StatusConflict, Message: "no daemon serves this home, so that there are no pages; start one: rouse serve"}
	}
	return nil
}

func (s *Server) access(r *http.Request) (any, error) {
	if err := s.accessible(); err != nil {
		return nil, err
	}
	return s.backend.Access(r.Context())
}

func (s *Server) login(r *http.Request, in api.LoginRequest) (any, error) {
	if err := s.accessible(); err != nil {
		return nil, err
	}
	return s.backend.Login(r.Context(), in.Path)
}

func (s *Server) rotate(r *http.Request) (any, error) {
	if err := s.accessible(); err != nil {
		return nil, err
	}
	if err := s.backend.RotateToken(r.Context()); err != nil {
		return nil, err
	}
	return s.backend.Access(r.Context())
}

func (s *Server) endSession(r *http.Request) (any, error) {
	if err := s.accessible(); err != nil {
		return nil, err
	}
	if err := s.backend.EndSession(r.Context(), r.PathValue("id")); err != nil {
		return nil, err
	}
	return s.backend.Access(r.Context())
}
