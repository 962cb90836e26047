package web

import (
	"context"
	"net/http"
	"reflect"
	"time"

	"rouse/cmd/internal/api"
	"rouse/internal/ledger"
	"rouse/skills/install"
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
		get[[]api.Check]("/v1/doctor", "Everything that would stop a run, each with its remedy. Nothing is started: what takes a program is answered as it was found last.", s.answer(func(r *http.Request) (any, error) {
			return s.backend.Doctor(r.Context(), flag(r, "offline"))
		}), Param{Name: "offline", Kind: ParamFlag, Says: "ask nothing of the network"}),
		local(post[api.DoctorRequest, []api.Check]("/v1/doctor", "Tries everything that would stop a run: it also finds out what takes a program, such as which tools an MCP server has.", s.answer(withBody(func(r *http.Request, in api.DoctorRequest) (any, error) {
			return s.backend.Doctor(r.Context(), in.Offline)
		}))))[0],
		post[api.Nothing, api.Reload]("/v1/reload", "Reads the configuration again and puts it into force.", s.answer(asked(s.backend.Reload))),
		post[api.NotifyRequest, api.NotifySent]("/v1/notices", "Sends a text to a notification channel at once.", s.answer(withBody(s.notify))),
		events,
	}
}

func (s *Server) notify(r *http.Request, in api.NotifyRequest) (any, error) {
	channel, err := s.backend.Notify(r.Context(), in.Channel, in.Text)
	return api.NotifySent{Channel: channel}, err
}

func (s *Server) webhookRoutes() []Route {
	return []Route{get[[]api.Webhook]("/v1/webhooks", "The webhooks of jobs, with what each started last.", s.answer(asked(s.backend.Webhooks)))}
}

func (s *Server) skillRoutes() []Route {
	return []Route{
		get[install.Inventory]("/v1/skills", "The skills of the configuration, and why others are not loaded.", s.answer(asked(s.backend.Skills))),
		get[install.Detail]("/v1/skills/{name}", "A skill: what it asks for, its instructions and docs.", s.answer(func(r *http.Request) (any, error) {
			return s.backend.Skill(r.Context(), r.PathValue("name"))
		})),
	}
}

func (s *Server) state(ctx context.Context) (api.State, error) {
	out := api.State{Now: api.At(time.Now())}
	jobs, err := s.ledger.Jobs(ctx)
	if err != nil {
		return out, err
	}
	out.Jobs = convert(jobs, func(j ledger.JobState) api.JobState {
		return api.JobState{Name: j.Name, Hash: j.ScheduleHash, Anchor: api.At(j.Anchor), Watermark: api.At(j.Watermark)}
	})
	if out.Pauses, err = s.ledger.Pauses(ctx, time.Time{}); err != nil {
		return out, err
	}
	if out.Wakes, err = s.ledger.Wakes(ctx); err != nil {
		return out, err
	}
	out.Pauses, out.Wakes = orEmpty(out.Pauses), orEmpty(out.Wakes)

	open, err := s.ledger.Unfinished(ctx)
	out.Runs = convert(open, func(run ledger.Run) api.OpenRun {
		return api.OpenRun{ID: api.ID(run.ID), Job: run.Job, Agent: run.Agent, Trigger: run.Trigger, State: run.State, WaitingFor: run.WaitingFor,
			NotBefore: api.At(run.NotBefore), QueuedAt: api.At(run.QueuedAt), Attempt: run.Attempt, Interruptions: run.Interruptions}
	})
	return out, err
}

// convert converts each item of a list. The result is never nil, so that its JSON is a list.
func convert[From, To any](list []From, one func(From) To) []To {
	out := make([]To, len(list))
	for i, item := range list {
		out[i] = one(item)
	}
	return out
}

// orEmpty returns a list that is not nil, so that its JSON is a list.
func orEmpty[T any](list []T) []T { return append([]T{}, list...) }

// accessRoutes are local: a client that was let in must not let others in, nor itself for longer.
func (s *Server) accessRoutes() []Route {
	access := s.accessible(func(*http.Request) (any, error) { return api.Nothing{}, nil })
	return local(
		get[api.Access]("/v1/access", "Where the pages are, and who is logged in.", access),
		post[api.LoginRequest, api.Login]("/v1/access/logins", "Makes a link that logs a browser in once.", s.accessible(withBody(func(r *http.Request, in api.LoginRequest) (any, error) {
			return s.backend.Login(r.Context(), in.Path)
		}))),
		post[api.Nothing, api.Access]("/v1/access/rotate", "Makes another token, and logs everybody out.", s.accessible(func(r *http.Request) (any, error) {
			return api.Nothing{}, s.backend.RotateToken(r.Context())
		})),
		post[api.Nothing, api.Access]("/v1/access/sessions/{id}/end", "Logs a browser out.", s.accessible(func(r *http.Request) (any, error) {
			return api.Nothing{}, s.backend.EndSession(r.Context(), r.PathValue("id"))
		})),
	)
}

// accessible answers a request about access, which fails if access is only possible through the socket. If
// do returns nothing, the answer is the access that there is then.
func (s *Server) accessible(do func(*http.Request) (any, error)) http.Handler {
	return s.answer(func(r *http.Request) (any, error) {
		if !s.backend.Network {
			return nil, conflict("no daemon serves this home, so that there are no pages; start one: rouse serve")
		}
		out, err := do(r)
		if _, nothing := out.(api.Nothing); err == nil && nothing {
			return s.backend.Access(r.Context())
		}
		return out, err
	})
}
