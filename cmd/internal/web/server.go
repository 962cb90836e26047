package web

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"

	"rouse/cmd/internal/access"
	"rouse/cmd/internal/api"
	"rouse/cmd/internal/cluster"
	"rouse/cmd/internal/control"
	"rouse/cmd/internal/doctor"
	"rouse/cmd/internal/homebackup"
	"rouse/cmd/internal/reload"
	"rouse/cmd/internal/status"
	"rouse/cmd/internal/why"
	"rouse/internal/ledger"
	"rouse/internal/progress"
)

// Options holds the parts of a process that handle requests. Live and Redact are optional.
type Options struct {
	Ledger   *ledger.Ledger
	Control  *control.Service
	Why      *why.Explainer
	Doctor   *doctor.Checker
	Nodes    *cluster.Self
	Reloader *reload.Reloader // nil in a command
	Status   *status.Reporter
	Backups  *homebackup.Maker
	Door     *access.Door

	Live     *progress.Tracker // current activity of the runs of this process
	Network  bool              // the process can serve browsers and programs on the network
	Stopping <-chan struct{}   // closed when the server stops, to end event streams
	Logger   *slog.Logger
	Redact   func(json.RawMessage) json.RawMessage // removes secrets from responses
}

// Handler serves /v1.
type Handler struct {
	http.Handler
	routes []Route
}

// Routes returns all routes of the API.
func (h *Handler) Routes() []Route { return slices.Clone(h.routes) }

// Server serves /v1, with one field for each subject. The methods of the exported fields offer the
// same operations to callers in this process without HTTP. Pages use them, so they cannot do more
// than the API. Failure converts their errors.
type Server struct {
	*responder

	Runs       *Runs
	Inbox      *Inbox
	Pauses     *Pauses
	Incidents  *Incidents
	Workspaces *Workspaces

	host       *host
	door       *door
	jobs       *jobs
	wakes      *wakes
	events     *events
	asks       *asks
	databases  *databases
	extensions *extensions

	reloader *reload.Reloader
	routes   []Route
}

// NewServer returns a Server. It returns an error if a required option is missing.
func NewServer(o Options) (*Server, error) {
	if o.Ledger == nil || o.Control == nil || o.Why == nil || o.Doctor == nil || o.Nodes == nil || o.Status == nil || o.Backups == nil || o.Door == nil {
		return nil, errors.New("web: a ledger and the parts that answer are needed")
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}

	c, base := o.Control, &responder{log: o.Logger, redact: o.Redact}
	s := &Server{responder: base, reloader: o.Reloader}
	s.Runs = &Runs{responder: base, ledger: o.Ledger, actions: c.Runs, catalog: c.Catalog, checkouts: c.Checkouts, explainer: o.Why}
	s.databases = &databases{responder: base, ledger: o.Ledger, storage: c.Storage, nodes: o.Nodes, homes: o.Backups}
	s.Inbox = &Inbox{responder: base, ledger: o.Ledger, storage: c.Storage, signIns: c.Extensions, runs: s.Runs, databases: s.databases}
	s.Pauses = &Pauses{responder: base, ledger: o.Ledger, schedule: c.Schedule}
	s.Incidents = &Incidents{responder: base, ledger: o.Ledger}
	s.Workspaces = &Workspaces{responder: base, ledger: o.Ledger, runs: s.Runs}
	s.host = &host{responder: base, ledger: o.Ledger, catalog: c.Catalog, doctor: o.Doctor, nodes: o.Nodes, reloader: o.Reloader, status: o.Status}
	s.door = &door{responder: base, network: o.Network, access: o.Door}
	s.jobs = &jobs{responder: base, catalog: c.Catalog, actions: c.Runs, costs: c.Costs, explainer: o.Why}
	s.wakes = &wakes{responder: base, schedule: c.Schedule}
	s.events = &events{responder: base, ledger: o.Ledger, live: o.Live, stopping: o.Stopping, heartbeat: heartbeat}
	s.asks = &asks{responder: base, ledger: o.Ledger, actions: c.Runs, catalog: c.Catalog, runs: s.Runs, status: o.Status, stopping: o.Stopping, heartbeat: heartbeat}
	s.extensions = &extensions{responder: base, actions: c.Runs, parts: c.Extensions}
	return s, nil
}

// NewHandler returns a handler for all of /v1.
func NewHandler(o Options) (*Handler, error) {
	s, err := NewServer(o)
	if err != nil {
		return nil, err
	}

	s.routes = slices.Concat(s.host.routes(), s.events.routes(), s.jobs.routes(), s.Runs.routes(), s.Runs.checkoutRoutes(), s.Inbox.routes(), s.Incidents.routes(), s.databases.routes(),
		s.databases.ledgerRoutes(), s.Pauses.routes(), s.wakes.routes(), s.extensions.routes(), s.Workspaces.routes(), s.asks.routes(), s.door.routes(), s.schemaRoutes())
	mux, methods := http.NewServeMux(), map[string][]string{}
	for _, route := range s.routes {
		mux.Handle(route.Method+" "+route.Path, s.admit(route))
		methods[route.Path] = append(methods[route.Path], route.Method)
	}
	for path, known := range methods {
		mux.Handle(path, s.otherMethod(known))
	}
	mux.Handle("/", s.answer(func(r *http.Request) (any, error) {
		return nil, &api.Error{Status: http.StatusNotFound, Message: fmt.Sprintf("this rouse has no %s %s; is it of the same version as the command?", r.Method, r.URL.Path)}
	}))
	return &Handler{Handler: s.fresh(mux), routes: s.routes}, nil
}

// fresh loads a newer configuration before a request that may start a run. If the configuration on
// disk is not active, it adds a header with the first problem to the response.
func (s *Server) fresh(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		load := r.Method != http.MethodGet && r.Method != http.MethodHead && r.URL.Path != "/v1/reload"
		if problem := s.reloader.ConfigProblem(r.Context(), load); problem != "" {
			w.Header().Set(api.ConfigProblemHeader, url.PathEscape(problem))
		}
		next.ServeHTTP(w, r)
	})
}
