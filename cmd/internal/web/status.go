package web

import (
	"context"
	"net/http"

	"rouse/cmd/internal/api"
)

// Host is the process that serves a home. Like all backends it returns an *api.Error if the request
// was wrong.
type Host interface {
	Status(ctx context.Context) (api.Status, error)
	// Doctor checks all that would stop a run; offline asks nothing of the network.
	Doctor(ctx context.Context, offline bool) ([]api.Check, error)
	// Reload reads the configuration again and puts it into force.
	Reload(ctx context.Context) (api.Reload, error)
	// Notify sends a text to a channel at once.
	Notify(ctx context.Context, channel, text string) error
}

func (s *server) hostRoutes(mux *http.ServeMux) {
	mux.Handle("GET /v1/status", s.answer(s.status))
	mux.Handle("GET /v1/state", s.answer(s.state))
	mux.Handle("GET /v1/doctor", s.answer(s.doctor))
	mux.Handle("POST /v1/reload", s.answer(s.reload))
	mux.Handle("POST /v1/notices", s.answer(s.notify))
	mux.HandleFunc("GET /v1/events", s.events)
}

func (s *server) status(r *http.Request) (any, error) { return s.backend.Host.Status(r.Context()) }

func (s *server) doctor(r *http.Request) (any, error) {
	return s.backend.Host.Doctor(r.Context(), r.URL.Query().Get("offline") != "")
}

func (s *server) reload(r *http.Request) (any, error) { return s.backend.Host.Reload(r.Context()) }

func (s *server) notify(r *http.Request) (any, error) {
	var in api.NotifyRequest
	if err := read(r, &in); err != nil {
		return nil, err
	}
	return struct{}{}, s.backend.Host.Notify(r.Context(), in.Channel, in.Text)
}
