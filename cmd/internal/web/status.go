package web

import (
	"net/http"
	"reflect"

	"rouse/cmd/internal/api"
)

func (s *Server) hostRoutes() []Route {
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
		get[api.Status]("/v1/status", "Who serves the home, and what it is doing.", s.answer(asked(s.backend.Status))),
		get[api.Engine]("/v1/engine", "Where the ledger is, and which nodes share it.", s.answer(asked(s.backend.Engine))),
		get[api.State]("/v1/state", "How far schedules, plans, pauses and runs have got: what a simulation begins with.", s.answer(asked(s.state))),
		get[[]api.Check]("/v1/doctor", "Everything that would stop a run, each with its remedy. Nothing is started: what takes a program is answered as it was found last.", s.answer(s.doctor), Param{Name: "offline", Kind: ParamFlag, Says: "ask nothing of the network"}),
		local(post[api.DoctorRequest, []api.Check]("/v1/doctor", "Tries everything that would stop a run: it also finds out what takes a program, such as which tools an MCP server has.", s.answer(withBody(func(r *http.Request, in api.DoctorRequest) (any, error) {
			return s.backend.Doctor(r.Context(), in.Offline)
		}))))[0],
		post[api.Nothing, api.Reload]("/v1/reload", "Reads the configuration again and puts it into force.", s.answer(asked(s.backend.Reload))),
		post[api.NotifyRequest, api.NotifySent]("/v1/notices", "Sends a text to a notification channel at once.", s.answer(withBody(s.notify))),
		events,
	}
}

func (s *Server) doctor(r *http.Request) (any, error) {
	return s.backend.Doctor(r.Context(), flag(r, "offline"))
}

func (s *Server) notify(r *http.Request, in api.NotifyRequest) (any, error) {
	channel, err := s.backend.Notify(r.Context(), in.Channel, in.Text)
	return api.NotifySent{Channel: channel}, err
}
