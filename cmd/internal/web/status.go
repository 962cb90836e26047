package web

import (
	"context"
	"net/http"
	"time"

	"rouse/cmd/internal/access"
	"rouse/cmd/internal/api"
	"rouse/cmd/internal/cluster"
	"rouse/cmd/internal/control"
	"rouse/cmd/internal/doctor"
	"rouse/cmd/internal/reload"
	"rouse/cmd/internal/status"
	"rouse/internal/ledger"
)

// host handles requests about the process and its home.
type host struct {
	*responder
	ledger   *ledger.Ledger
	catalog  *control.Catalog
	doctor   *doctor.Checker
	nodes    *cluster.Self
	reloader *reload.Reloader
	status   *status.Reporter
}

func (s *host) routes() []Route {
	return []Route{
		get[api.Status]("/v1/status", "Who serves the home, and what it is doing.", s.answer(asked(s.status.Status))),
		get[api.Engine]("/v1/engine", "Where the ledger is, and which nodes share it.", s.answer(asked(s.nodes.Engine))),
		get[api.State]("/v1/state", "How far schedules, plans, pauses and runs have got: what a simulation begins with.", s.answer(asked(s.state))),
		get[[]api.Check]("/v1/doctor", "Everything that would stop a run, each with its remedy. Nothing is started: what takes a program is answered as it was found last.", s.answer(func(r *http.Request) (any, error) {
			return s.doctor.Doctor(r.Context(), flag(r, "offline"))
		}), Param{Name: "offline", Kind: ParamFlag, Description: "ask nothing of the network"}),
		local(post[api.DoctorRequest, []api.Check]("/v1/doctor", "Tries everything that would stop a run: it also finds out what takes a program, such as which tools an MCP server has.", s.answer(withBody(func(r *http.Request, in api.DoctorRequest) (any, error) {
			return s.doctor.Doctor(r.Context(), in.Offline)
		}))))[0],
		post[api.Nothing, api.Reload]("/v1/reload", "Reads the configuration again and puts it into force.", s.answer(asked(s.reloader.Reload))),
		post[api.NotifyRequest, api.NotifySent]("/v1/notices", "Sends a text to a notification channel at once.", s.answer(withBody(s.notify))),
	}
}

func (s *host) notify(r *http.Request, in api.NotifyRequest) (any, error) {
	channel, err := s.catalog.Notify(r.Context(), in.Channel, in.Text)
	return api.NotifySent{Channel: channel}, err
}

func (s *host) state(ctx context.Context) (api.State, error) {
	out := api.State{Now: api.At(time.Now())}
	jobs, err := s.ledger.Jobs(ctx)
	if err != nil {
		return out, err
	}
	out.Jobs = convert(jobs, func(j ledger.JobState) api.JobState {
		return api.JobState{Name: j.Name, Hash: j.ScheduleHash, Anchor: api.At(j.Anchor), Watermark: api.At(j.Watermark)}
	})
	if out.Pauses, err = s.ledger.Pauses.List(ctx, time.Time{}); err != nil {
		return out, err
	}
	if out.Wakes, err = s.ledger.Wakes.List(ctx); err != nil {
		return out, err
	}
	out.Pauses, out.Wakes = orEmpty(out.Pauses), orEmpty(out.Wakes)

	open, err := s.ledger.Runs.Unfinished(ctx)
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

// door handles requests about access over the network.
type door struct {
	*responder
	network bool // the process can serve the network
	access  *access.Door
}

// routes returns the routes of network access. They are local, because a client with access must
// not grant access to others or extend its own.
func (s *door) routes() []Route {
	access := s.accessible(func(*http.Request) (any, error) { return api.Nothing{}, nil })
	return local(
		get[api.Access]("/v1/access", "Where the pages are, and who is logged in.", access),
		post[api.LoginRequest, api.Login]("/v1/access/logins", "Makes a link that logs a browser in once.", s.accessible(withBody(func(r *http.Request, in api.LoginRequest) (any, error) {
			return s.access.Login(r.Context(), in.Path)
		}))),
		post[api.Nothing, api.Access]("/v1/access/rotate", "Makes another token, and logs everybody out.", s.accessible(func(r *http.Request) (any, error) {
			return api.Nothing{}, s.access.RotateToken(r.Context())
		})),
		post[api.Nothing, api.Access]("/v1/access/sessions/{id}/end", "Logs a browser out.", s.accessible(func(r *http.Request) (any, error) {
			return api.Nothing{}, s.access.EndSession(r.Context(), r.PathValue("id"))
		})),
	)
}

// accessible wraps a handler of requests about access. It returns an error if the process cannot
// serve the network. If do returns api.Nothing, the response is the access after the request.
func (s *door) accessible(do func(*http.Request) (any, error)) http.Handler {
	return s.answer(func(r *http.Request) (any, error) {
		if !s.network {
			return nil, conflict("no daemon serves this home, so that there are no pages; start one: rouse serve")
		}
		out, err := do(r)
		if _, nothing := out.(api.Nothing); err == nil && nothing {
			return s.access.Access(r.Context())
		}
		return out, err
	})
}
