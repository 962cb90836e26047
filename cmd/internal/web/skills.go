package web

import (
	"net/http"

	"rouse/skills/install"
)

func (s *Server) skillRoutes() []Route {
	return []Route{
		get[install.Inventory]("/v1/skills", "The skills of the configuration, and why others are not loaded.", s.answer(asked(s.backend.Skills))),
		get[install.Detail]("/v1/skills/{name}", "A skill: what it asks for, its instructions and docs.", s.answer(s.skill)),
	}
}

func (s *Server) skill(r *http.Request) (any, error) {
	return s.backend.Skill(r.Context(), r.PathValue("name"))
}
