package dashboard

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/a-h/templ"

	"rouse/agentdb"
	"rouse/agentdb/changelog"
	"rouse/agentdb/schema"
	"rouse/agentdb/view"
	"rouse/cmd/internal/api"
	"rouse/cmd/internal/web"
	"rouse/internal/domain"
	"rouse/internal/ledger/pause"
	"rouse/internal/ledger/runs"
)

const (
	activityRuns    = 30
	activityChanges = 100
)

// agent holds the data common to all pages of an agent.
type agent struct {
	page
	Name   string
	Tab    string
	Wake   api.AgentWake
	Jobs   []api.Job
	Pauses []api.Pause // pauses that affect the agent
	DBFail string      // why the agent's database cannot be read
	HasDB  bool
}

// pinned is a view shown on an agent's first page.
type pinned struct {
	view.View
	Result agentdb.ViewResult
	Fail   string
}

func (s *site) agentRoutes(mux *http.ServeMux) {
	mux.Handle("GET /agents", s.show(s.agents))
	mux.Handle("GET /agents/{name}", s.showAgent("Home", s.agentHome))
	mux.Handle("GET /agents/{name}/schema", s.showAgent("Schema", s.agentSchema))
	mux.Handle("GET /agents/{name}/views", s.showAgent("Views", s.agentViews))
	mux.Handle("GET /agents/{name}/activity", s.showAgent("Activity", s.agentActivity))
	mux.Handle("POST /agents/{name}/pin", s.do(s.pinView))
	mux.Handle("POST /agents/{name}/run", s.do(s.runAgent))
	mux.Handle("POST /agents/{name}/wake", s.do(s.planWake))
	mux.Handle("POST /agents/{name}/wake/cancel", s.do(func(r *http.Request) (string, error) {
		_, err := s.control.CancelWake(r.Context(), r.PathValue("name"))
		return back(r), err
	}))
	s.pauseRoutes(mux, "/agents/{name}", pause.Agent)
}

// showAgent returns a handler for a page of an agent.
func (s *site) showAgent(tab string, make func(*http.Request, agent) (templ.Component, error)) http.Handler {
	return s.show(func(r *http.Request, p page) (templ.Component, error) {
		a, err := s.newAgent(r, p, tab)
		if err != nil {
			return nil, err
		}
		return make(r, a)
	})
}

func (s *site) agents(r *http.Request, p page) (templ.Component, error) {
	ctx := r.Context()
	jobs, e1 := s.control.Jobs(ctx)
	wakes, e2 := s.control.Wakes(ctx, "")
	if err := cmp.Or(e1, e2); err != nil {
		return nil, err
	}

	var all []agent
	for _, name := range s.control.AgentNames() {
		a := agent{page: p, Name: name, Jobs: jobsOf(jobs, name)}
		for _, w := range wakes {
			if w.Agent == name {
				a.Wake = w
			}
		}
		all = append(all, a)
	}
	return agentsPage(p.titled("Agents", "Agents"), all), nil
}

func jobsOf(jobs []api.Job, agent string) []api.Job {
	return slices.DeleteFunc(slices.Clone(jobs), func(j api.Job) bool { return j.Agent != agent })
}

// newAgent reads the data common to all pages of an agent.
func (s *site) newAgent(r *http.Request, p page, tab string) (agent, error) {
	ctx, name := r.Context(), r.PathValue("name")
	a := agent{page: p.titled(name+" · "+tab, "Agents"), Name: name, Tab: tab}
	if err := s.control.Known("", name); err != nil {
		return a, err
	}

	wakes, e1 := s.control.Wakes(ctx, name)
	jobs, e2 := s.control.Jobs(ctx)
	pauses, e3 := s.answers.Pauses.List(ctx)
	if err := cmp.Or(e1, e2, e3); err != nil {
		return a, err
	}
	for _, w := range wakes {
		a.Wake = w
	}
	a.Jobs = jobsOf(jobs, name)
	for _, current := range pauses {
		if (current.Scope == pause.All || current.Scope == pause.Agent && strings.EqualFold(current.Name, name)) && !current.Since.After(p.Now) {
			a.Pauses = append(a.Pauses, current)
		}
	}

	pool, err := s.control.Databases(name)
	if err == nil {
		a.HasDB = pool.Has(name)
	}
	return a, err
}

// useDB calls do with an agent's database.
func (s *site) useDB(ctx context.Context, agent string, do func(*agentdb.DB) error) error {
	db, release, err := s.control.Database(ctx, agent)
	if err != nil {
		return err
	}
	defer release()
	return do(db)
}

// withDB calls do with an agent's database. It does not create a missing database. If the database
// cannot be opened, it sets DBFail, which the page shows.
func (s *site) withDB(ctx context.Context, a *agent, do func(*agentdb.DB) error) error {
	if !a.HasDB {
		return nil
	}
	db, release, err := s.control.Database(ctx, a.Name)
	if err != nil {
		a.DBFail, err = err.Error(), nil
		return err
	}
	defer release()
	return do(db)
}

func (s *site) agentHome(r *http.Request, a agent) (templ.Component, error) {
	var views []pinned
	err := s.withDB(r.Context(), &a, func(db *agentdb.DB) error {
		all, err := db.Views.List(r.Context())
		for _, v := range all {
			if !v.Pinned {
				continue
			}
			one := pinned{View: v}
			// A broken view does not prevent the others from being shown.
			if one.Result, err = db.Views.Show(r.Context(), v.Name); err != nil {
				one.Fail, err = s.answers.Failure(r, err).Message, nil
			}
			views = append(views, one)
		}
		return err
	})
	return agentHomePage(a, views), err
}

func (s *site) agentSchema(r *http.Request, a agent) (templ.Component, error) {
	var schema schema.Schema
	var stats agentdb.Stats
	err := s.withDB(r.Context(), &a, func(db *agentdb.DB) (err error) {
		if schema, err = db.Schema(r.Context()); err != nil {
			return err
		}
		stats, err = db.Stats(r.Context())
		return err
	})
	return schemaPage(a, schema, stats), err
}

// agentViews lists the saved views and shows one of them with values for its parameters.
func (s *site) agentViews(r *http.Request, a agent) (templ.Component, error) {
	name := r.URL.Query().Get("view")
	var views []view.View
	var shown *pinned
	err := s.withDB(r.Context(), &a, func(db *agentdb.DB) (err error) {
		if views, err = db.Views.List(r.Context()); err != nil {
			return err
		}
		for _, v := range views {
			if v.Name != name {
				continue
			}
			shown = &pinned{View: v}
			given := map[string]any{}
			for _, param := range v.Params {
				if value := r.URL.Query().Get("p." + param.Name); value != "" {
					given[param.Name] = value
				}
			}
			if shown.Result, err = db.Views.Run(r.Context(), name, given); err != nil {
				shown.Fail, err = s.answers.Failure(r, err).Message, nil
			}
		}
		return err
	})
	// A notice may link to a view that has been deleted.
	if err == nil && name != "" && shown == nil {
		err = notFound("the agent %s has no view %q (any more)", a.Name, name)
	}
	return viewsPage(a, views, shown, r.URL.Query()), err
}

// pinView pins a view to the first page of its agent, or unpins it.
func (s *site) pinView(r *http.Request) (string, error) {
	return back(r), s.useDB(r.Context(), r.PathValue("name"), func(db *agentdb.DB) error {
		return db.Views.Pin(r.Context(), byOwner, r.PostFormValue("view"), r.PostFormValue("pinned") == "yes")
	})
}

// agentActivity shows the runs of an agent and the changes each made in its database.
func (s *site) agentActivity(r *http.Request, a agent) (templ.Component, error) {
	q := r.URL.Query()
	f := changelog.Filter{Table: q.Get("table"), Newest: true, MaxCount: activityChanges}
	if text := q.Get("run"); text != "" {
		var err error
		if f.Run, err = strconv.ParseInt(text, 10, 64); err != nil {
			return nil, badRequest("%q is no run", text)
		}
		f.MaxCount = maxRows // as many as the page of a run counts
	}

	floor, err := s.floor(r.Context(), 0)
	if err != nil {
		return nil, err
	}
	runs, err := s.answers.Runs.List(r.Context(), runs.Filter{Agent: a.Name, After: floor, Limit: activityRuns})
	if err != nil {
		return nil, err
	}

	var changed []api.Change
	err = s.withDB(r.Context(), &a, func(db *agentdb.DB) (err error) {
		changed, err = web.Changes(r.Context(), db, f)
		if q.Get("of") == "database" { // only entries without a table
			changed = slices.DeleteFunc(changed, func(c api.Change) bool { return c.Table != "" })
		}
		return err
	})
	return activityPage(a, runs, changed, q.Get("run"), f.Table), err
}

// runAgent starts a run of an agent with a prompt.
func (s *site) runAgent(r *http.Request) (string, error) {
	prompt := strings.TrimSpace(r.PostFormValue("prompt"))
	if prompt == "" {
		return "", badRequest("say what the agent is to do")
	}
	started, err := s.answers.Runs.Fire(r.Context(), api.RunRequest{Agent: r.PathValue("name"), Prompt: prompt})
	return runPath(started.ID), err
}

// planWake plans the next wake of an agent, or changes the planned one.
func (s *site) planWake(r *http.Request) (string, error) {
	ask := api.WakeRequest{Agent: r.PathValue("name"), At: s.typedTime(r, "at"), Instructions: r.PostFormValue("instructions")}
	_, err := s.control.SetWake(r.Context(), ask)
	return back(r), err
}

// changedAt returns the time of a changelog entry.
func changedAt(c api.Change) time.Time {
	t, _ := time.Parse(time.RFC3339Nano, c.At)
	return t
}

// mode returns the agent's self-scheduling mode, or "" if it does not plan wakes.
func (a agent) mode() string {
	if a.Wake.Limits != nil && a.Wake.Planning {
		return a.Wake.Limits.Mode
	}
	return ""
}

func finished(r api.Run) bool { return r.State == domain.StateFinished }
