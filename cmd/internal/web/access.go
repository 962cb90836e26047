package web

import (
	"net/http"

	"rouse/cmd/internal/api"
)

// accessRoutes are local: a client that was let in must not let others in, nor itself for longer.
func (s *Server) accessRoutes() []Route {
	access := s.accessible(func(*http.Request) (any, error) { return api.Nothing{}, nil })
	return local(
		get[api.Access]("/v1/access", "Where the pages are, and who is logged in.", access),
		post[api.LoginRequest, api.Login]("/v1/access/logins", "Makes a link that logs a browser in once.", s.accessible(withBody(func(r *http.Request, in api.LoginRequest) (any, error) {
			return s.backend.Login(r.Context(), in.Path)
		}))),
		post[api.Nothing, api.Access]("/v1/access/rotate", "Makes another token, and logs everybody out.", s.accessible(func(r *http.Request) (any, error) {
			return api.Nothing{}, s.backend.RotateToken(r.Context())
		})),
		post[api.Nothing, api.Access]("/v1/access/sessions/{id}/end", "Logs a browser out.", s.accessible(func(r *http.Request) (any, error) {
			return api.Nothing{}, s.backend.EndSession(r.Context(), r.PathValue("id"))
		})),
	)
}

// accessible answers a request about access, which fails if access is only possible through the socket. If
// do returns nothing, the answer is the access that there is then.
func (s *Server) accessible(do func(*http.Request) (any, error)) http.Handler {
	return s.answer(func(r *http.Request) (any, error) {
		if !s.backend.Network {
			return nil, conflict("no daemon serves this home, so that there are no pages; start one: rouse serve")
		}
		out, err := do(r)
		if _, nothing := out.(api.Nothing); err == nil && nothing {
			return s.backend.Access(r.Context())
		}
		return out, err
	})
}
