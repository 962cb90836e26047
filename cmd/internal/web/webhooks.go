package web

import (
	"rouse/cmd/internal/api"
)

func (s *Server) webhookRoutes() []Route {
	return []Route{get[[]api.Webhook]("/v1/webhooks", "The webhooks of jobs, with what each started last.", s.answer(asked(s.backend.Webhooks)))}
}
