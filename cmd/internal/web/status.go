package web

import (
	"context"
	"net/http"
	"reflect"

	"rouse/cmd/internal/api"
)

// Host is the process that serves a home. Like all backends it returns an *api.Error if the request
// was wrong.
type Host interface {
	Status(ctx context.Context) (api.Status, error)
	// Doctor checks all that would stop a run; offline asks nothing of the network. If ctx allows no program, what takes one is as it
	// was found last.
	Doctor(ctx context.Context, offline bool) ([]api.Check, error)
	// Reload reads the configuration again and puts it into force.
	Reload(ctx context.Context) (api.Reload, error)
	// ConfigProblem returns why the configuration on disk is not in use, or "". If load is true, it loads a newer configuration first.
	ConfigProblem(ctx context.Context, load bool) string
	// BackUp makes a backup of the whole home.
	BackUp(ctx context.Context, ask api.HomeBackupRequest, progress func(done, of int64)) (api.HomeBackup, error)
	// Engine says where the ledger is, and who works on it.
	Engine(ctx context.Context) (api.Engine, error)
	// Notify sends a text to a channel at once.
	Notify(ctx context.Context, channel, text string) (sentTo string, err error)
}

func (s *server) hostRoutes() []Route {
	events := Route{Method: http.MethodGet, Path: "/v1/events", Says: "What happens, as JSON lines from the beginning or, with Accept: text/event-stream, as server-sent events from now on. Last-Event-ID resumes them.",
		Query: []Param{
			{Name: "run", Kind: ParamCursor, Says: "of one run; a stream ends with it"},
			{Name: "job", Kind: ParamText, Says: "of one job"},
			{Name: "kind", Kind: ParamText, Many: true, Says: "of these kinds: run.finished, or run.* for all that begin so"},
			{Name: "since", Kind: ParamTime, Says: "since then"},
			{Name: "after", Kind: ParamCursor, Says: "those behind the event of this id"},
			{Name: "follow", Kind: ParamFlag, Says: "lines also of what is yet to happen"},
			{Name: "from_now", Kind: ParamFlag, Says: "nothing that has happened before"},
			{Name: "live", Kind: ParamFlag, Says: "of a stream that is followed: also what is not on record, twice a second at most: the parts of an answer as a model writes it (step.output, step.draft), and that something goes on (step.progress)"},
		},
		Answer: []Content{{mediaLines, reflect.TypeFor[api.Event]()}, {mediaEvents, reflect.TypeFor[api.Event]()}}, handler: http.HandlerFunc(s.events)}

	return []Route{
		get[api.Status]("/v1/status", "Who serves the home, and what it is doing.", s.answer(s.status)),
		get[api.Engine]("/v1/engine", "Where the ledger is, and which nodes share it.", s.answer(s.engine)),
		get[api.State]("/v1/state", "How far schedules, plans, pauses and runs have got: what a simulation begins with.", s.answer(s.state)),
		get[[]api.Check]("/v1/doctor", "Everything that would stop a run, each with its remedy. Nothing is started: what takes a program is answered as it was found last.", s.answer(s.doctor), Param{Name: "offline", Kind: ParamFlag, Says: "ask nothing of the network"}),
		local(post[api.DoctorRequest, []api.Check]("/v1/doctor", "Tries everything that would stop a run: it also finds out what takes a program, such as which tools an MCP server has.", s.answer(withBody(func(r *http.Request, in api.DoctorRequest) (any, error) {
			return s.backend.Host.Doctor(r.Context(), in.Offline)
		}))))[0],
		post[api.Nothing, api.Reload]("/v1/reload", "Reads the configuration again and puts it into force.", s.answer(s.reload)),
		post[api.NotifyRequest, api.NotifySent]("/v1/notices", "Sends a text to a notification channel at once.", s.answer(s.notify)),
		events,
	}
}

func (s *server) status(r *http.Request) (any, error) { return s.backend.Host.Status(r.Context()) }

func (s *server) engine(r *http.Request) (any, error) { return s.backend.Host.Engine(r.Context()) }

func (s *server) doctor(r *http.Request) (any, error) {
	return s.backend.Host.Doctor(r.Context(), flag(r, "offline"))
}

func (s *server) reload(r *http.Request) (any, error) { return s.backend.Host.Reload(r.Context()) }

func (s *server) notify(r *http.Request) (any, error) {
	var in api.NotifyRequest
	if err := read(r, &in); err != nil {
		return nil, err
	}
	channel, err := s.backend.Host.Notify(r.Context(), in.Channel, in.Text)
	return api.NotifySent{Channel: channel}, err
}
