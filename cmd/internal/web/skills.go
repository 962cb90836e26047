package web

import (
	"context"
	"net/http"

	"rouse/skills/install"
)

// Skills shows the skills of the configuration.
type Skills interface {
	// Skills are all of them, and why others are not loaded.
	Skills(ctx context.Context) (install.Inventory, error)
	// Skill is all that is shown of one: what it asks for, its instructions and docs (OSL-34).
	Skill(ctx context.Context, name string) (install.Detail, error)
}

func (s *server) skillRoutes(mux *http.ServeMux) {
	mux.Handle("GET /v1/skills", s.answer(s.skills))
	mux.Handle("GET /v1/skills/{name}", s.answer(s.skill))
}

func (s *server) skills(r *http.Request) (any, error) { return s.backend.Skills.Skills(r.Context()) }

func (s *server) skill(r *http.Request) (any, error) {
	return s.backend.Skills.Skill(r.Context(), r.PathValue("name"))
}
