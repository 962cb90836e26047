package dashboard

import (
	"net/http"
	"strings"

	"github.com/a-h/templ"

	"rouse/skills"
	"rouse/skills/install"
)

// maxSkillHits is the maximum number of search results.
const maxSkillHits = 50

func (s *site) skillRoutes(mux *http.ServeMux) {
	mux.Handle("GET /skills", s.show(s.skills))
	mux.Handle("GET /skills/{name}", s.show(s.skill))
	mux.Handle("GET /skills/{name}/text", s.text(s.skillText))
}

// skills lists the skills of the configuration or, for a search, the matching ones with the best
// first.
func (s *site) skills(r *http.Request, p page) (templ.Component, error) {
	all, err := s.control.Skills(r.Context())
	if err != nil {
		return nil, err
	}

	words, found := strings.TrimSpace(r.URL.Query().Get("q")), all.Skills
	if words != "" {
		found = searchSkills(all.Skills, words)
	}
	return skillsPage(p.titled("Skills", "Skills"), found, all.Problems, words), nil
}

// searchSkills searches names, descriptions and tags with the same search that agents use.
func searchSkills(all []install.Listed, words string) (found []install.Listed) {
	byName, entries := map[string]install.Listed{}, make([]skills.Entry, len(all))
	for i, one := range all {
		byName[one.Name], entries[i] = one, one.Entry()
	}
	for _, hit := range skills.Search(words, entries, maxSkillHits) {
		found = append(found, byName[hit.Name])
	}
	return found
}

func (s *site) skill(r *http.Request, p page) (templ.Component, error) {
	d, err := s.control.Skill(r.Context(), r.PathValue("name"))
	if err != nil {
		return nil, err
	}
	return skillPage(p.titled(line(d.Name), "Skills"), d), nil
}

// skillText returns the full docs or instructions of a skill.
func (s *site) skillText(r *http.Request) (string, error) {
	d, err := s.control.Skill(r.Context(), r.PathValue("name"))
	if r.URL.Query().Get("of") == "docs" {
		return d.Docs, err
	}
	return d.Instructions, err
}

// skillState describes the source of a skill.
func skillState(l install.Listed) string {
	switch {
	case l.Installed == nil:
		return "your own, from " + l.Source
	case l.State == "changed":
		return "installed from " + l.Installed.Source + ", and changed since"
	}
	return "installed from " + l.Installed.Source
}
