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

func (s *server) skillRoutes() []Route {
	return []Route{
		get[install.Inventory]("/v1/skills", "The skills of the configuration, and why others are not loaded.", s.answer(s.skills)),
		get[install.Detail]("/v1/skills/{name}", "A skill: what it asks for, its instructions and docs.", s.answer(s.skill)),
	}
}

func (s *server) skills(r *http.Request) (any, error) { return s.backend.Skills.Skills(r.Context()) }

func (s *server) skill(r *http.Request) (any, error) {
	return s.backend.Skills.Skill(r.Context(), r.PathValue("name"))
}
