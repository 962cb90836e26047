package web

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"rouse/agentdb/ledger"
	"rouse/cmd/internal/api"
	"rouse/internal/domain"
)

// maxWait bounds how long a client may ask to wait, in seconds.
const maxWait = 24 * 60 * 60

// askRoutes ask an agent for one thing; what they start are runs like any other (OSA-28).
func (s *Server) askRoutes() []Route {
	completions := post[api.ChatRequest, api.ChatCompletion]("/v1/chat/completions", "OpenAI's chat completions, with the name of an agent as model: its tools run here, the end of its run is the answer.", http.HandlerFunc(s.chat))
	completions.Answer = append(completions.Answer, Content{mediaEvents, completions.Answer[0].Type})

	return []Route{
		post[api.AgentRunRequest, api.AgentRun]("/v1/agents/{agent}/run", "Has an agent do one thing, and answers with the summary of its run, or the question that it waits for.", s.answer(withBody(s.runAgent))).once(),
		completions.once(),
		get[api.ChatModels]("/v1/models", "The agents, as OpenAI lists models.", s.answer(s.models)),
	}
}

func (s *Server) runAgent(r *http.Request, in api.AgentRunRequest) (any, error) {
	if in.Wait < 0 || in.Wait > maxWait {
		return nil, usage("wait must be a number of seconds up to %d, not %d", maxWait, in.Wait)
	}

	id, err := s.ask(r, api.RunRequest{Agent: r.PathValue("agent"), Prompt: in.Prompt, Input: in.Input, Session: in.Session, Fresh: in.Fresh})
	if err != nil {
		return nil, err
	}

	ctx := r.Context()
	if in.Wait > 0 {
		waiting, cancel := context.WithTimeout(ctx, time.Duration(in.Wait)*time.Second)
		defer cancel()
		ctx = waiting
	}
	run, err := s.awaitEnd(ctx, id, nil)
	// Who waits no longer is told how far it is.
	if errors.Is(err, context.DeadlineExceeded) && r.Context().Err() == nil {
		run, err = s.ledger.Run(r.Context(), id)
	}
	if err != nil {
		return nil, err
	}
	return s.agentRun(r.Context(), run)
}

// ask starts a run of an agent where somebody executes it.
func (s *Server) ask(r *http.Request, ask api.RunRequest) (int64, error) {
	if strings.TrimSpace(ask.Prompt) == "" {
		return 0, usage("say what the agent %s shall do", ask.Agent)
	}

	if err := readKey(r, &ask); err != nil {
		return 0, err
	}
	st, err := s.backend.Status(r.Context())
	if err != nil {
		return 0, err
	}
	if st.Foreground {
		return 0, &api.Error{Status: http.StatusConflict, Message: "no daemon serves this home, so that nobody would execute the run; start one: rouse serve"}
	}

	ask.Trigger = domain.TriggerAPI
	return s.backend.Fire(r.Context(), ask)
}

// awaitEnd waits until a run is over, or waits for a person. beat is called where nothing happens for a while; nil: never.
func (s *Server) awaitEnd(ctx context.Context, id int64, beat func() error) (ledger.Run, error) {
	alive := time.NewTicker(s.heartbeat)
	defer alive.Stop()
	for {
		changed := s.ledger.Changed() // before reading, so that no change is missed
		run, err := s.ledger.Run(ctx, id)
		if err != nil || run.State == domain.StateFinished || run.WaitsForPerson() {
			return run, err
		}

		select {
		case <-changed:
		case <-alive.C:
			if beat != nil {
				if err := beat(); err != nil {
					return run, err
				}
			}
		case <-s.backend.Stopping:
			return run, &api.Error{Status: http.StatusServiceUnavailable, Message: "the daemon stops; the run " + runNumber(run) + " goes on at its next start"}
		case <-ctx.Done():
			return run, ctx.Err()
		}
	}
}

func runNumber(run ledger.Run) string { return id(run.ID) }

// agentRun says what became of a run.
func (s *Server) agentRun(ctx context.Context, run ledger.Run) (api.AgentRun, error) {
	shown, err := s.oneWithArtifacts(ctx, run, nil)
	if err != nil {
		return api.AgentRun{}, err
	}

	out := api.AgentRun{Run: shown, Summary: run.Summary}
	if !run.WaitsForPerson() {
		return out, nil
	}
	items, err := s.ledger.ItemsOf(ctx, run.ID)
	for _, i := range items {
		if i.State == ledger.ItemOpen && i.Kind != ledger.KindInfo {
			item := newItem(i)
			out.Item = &item
			break
		}
	}
	return out, err
}
