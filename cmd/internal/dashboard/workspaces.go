package dashboard

import (
	"net/http"
	"slices"

	"github.com/a-h/templ"

	"rouse/cmd/internal/api"
	"rouse/internal/ledger/artifact"
	"rouse/internal/ledger/workspace"
)

func (s *site) workspaceRoutes(mux *http.ServeMux) {
	mux.Handle("GET /workspaces", s.show(s.workspaces))
	mux.Handle("GET /workspaces/{id}", s.show(s.workspace))
	mux.Handle("GET /workspaces/{id}/text", s.text(s.workspaceText))
	mux.Handle("POST /workspaces/{id}/{action}", s.do(s.changeWorkspace))
	mux.Handle("POST /workspaces/{id}/artifacts/{artifact}/{decision}", s.do(s.decideArtifact))
}

func (s *site) workspaces(r *http.Request, p page) (templ.Component, error) {
	q := r.URL.Query()
	before, err := before(r, "a workspace")
	if err != nil {
		return nil, err
	}

	found, err := s.answers.Workspaces.List(r.Context(), workspace.Filter{Agent: q.Get("agent"), Skill: q.Get("skill"), Status: workspace.Status(q.Get("status")), Before: before, Limit: itemsOnPage})
	older := ""
	if len(found) == itemsOnPage {
		older = link([]string{"workspaces"}, "agent", q.Get("agent"), "skill", q.Get("skill"), "status", q.Get("status"), "before", found[len(found)-1].ID)
	}
	return workspacesPage(p.titled("Workspaces", "Workspaces"), found, q.Get("status"), older), err
}

func (s *site) workspace(r *http.Request, p page) (templ.Component, error) {
	w, err := s.answers.Workspaces.Workspace(r.Context(), pathID(r, "id"))
	return workspacePage(p.titled(line(w.Name), "Workspaces"), w), err
}

// workspaceText returns the full state of a workspace.
func (s *site) workspaceText(r *http.Request) (string, error) {
	found, err := s.answers.Workspaces.Workspace(r.Context(), pathID(r, "id"))
	return pretty(found.State), err
}

func (s *site) changeWorkspace(r *http.Request) (string, error) {
	_, err := s.answers.Workspaces.Change(r.Context(), pathID(r, "id"), r.PathValue("action"))
	return link([]string{"workspaces", r.PathValue("id")}), err
}

func (s *site) decideArtifact(r *http.Request) (string, error) {
	_, err := s.answers.Workspaces.DecideArtifact(r.Context(), pathID(r, "id"), pathID(r, "artifact"), r.PathValue("decision"))
	return link([]string{"workspaces", r.PathValue("id")}), err
}

// workspaceAction is an action the owner can perform on a workspace.
type workspaceAction struct{ Name, Word, Class string }

// actionsOf returns the actions allowed in the workspace's state.
func actionsOf(w api.Workspace) []workspaceAction {
	var out []workspaceAction
	if w.Review != "" {
		out = append(out, workspaceAction{"acknowledge", "Take it as it is", "main"},
			workspaceAction{"discard", "Put it back to the last checkpoint", "danger"},
			workspaceAction{"retry", "Put it back, and run again from there", ""})
	}
	switch w.Status {
	case workspace.Active:
		out = append(out, workspaceAction{"pause", "Pause", ""}, workspaceAction{"archive", "Archive", ""})
	case workspace.Paused:
		out = append(out, workspaceAction{"resume", "Resume", "main"}, workspaceAction{"archive", "Archive", ""})
	case workspace.Archived:
		out = append(out, workspaceAction{"resume", "Take it up again", ""})
	}
	return out
}

// statusMark returns the mark of a workspace's status.
func statusMark(w api.Workspace) mark {
	switch {
	case w.Review != "":
		return mark{"!", "amber", "to be reviewed"}
	case w.Run != "":
		return mark{"◌", "accent", "at work"}
	case w.Status == workspace.Active:
		return mark{"●", "good", "active"}
	case w.Status == workspace.Paused:
		return mark{"■", "amber", "paused"}
	}
	return mark{"○", "grey", string(w.Status)}
}

// undecided reports whether an artifact waits for the owner's decision.
func undecided(a api.WorkspaceArtifact) bool {
	return !slices.Contains([]string{artifact.Approved, artifact.Rejected}, a.Approval)
}
