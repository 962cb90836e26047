package web

import (
	"context"
	"net/http"

	"rouse/cmd/internal/api"
)

// Webhooks lists the webhooks of jobs. Their requests are no part of the API: cmd/internal/webhook.
type Webhooks interface {
	Webhooks(ctx context.Context) ([]api.Webhook, error)
}

func (s *server) webhookRoutes() []Route {
	return []Route{get[[]api.Webhook]("/v1/webhooks", "The webhooks of jobs, with what each started last.", s.answer(s.webhooks))}
}

func (s *server) webhooks(r *http.Request) (any, error) {
	return s.backend.Webhooks.Webhooks(r.Context())
}
