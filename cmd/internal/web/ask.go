package web

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/control"
	"rouse/cmd/internal/status"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/inbox"
)

// maxWait is the maximum wait time of a request in seconds.
const maxWait = 24 * 60 * 60

// asks handles requests that ask an agent, including requests of OpenAI clients.
type asks struct {
	*responder
	ledger    *ledger.Ledger
	actions   *control.Runs
	catalog   *control.Catalog
	runs      *Runs
	status    *status.Reporter
	stopping  <-chan struct{}
	heartbeat time.Duration // interval for streams
}

// routes returns the routes that ask an agent. The runs that they start are normal runs.
func (s *asks) routes() []Route {
	completions := post[api.ChatRequest, api.ChatCompletion]("/v1/chat/completions", "OpenAI's chat completions, with the name of an agent as model: its tools run here, the end of its run is the answer.", http.HandlerFunc(s.chat))
	completions.Answer = append(completions.Answer, Content{mediaEvents, completions.Answer[0].Type})

	return []Route{
		post[api.AgentRunRequest, api.AgentRun]("/v1/agents/{agent}/run", "Has an agent do one thing, and answers with the summary of its run, or the question that it waits for.", s.answer(withBody(s.runAgent))).once(),
		completions.once(),
		get[api.ChatModels]("/v1/models", "The agents, as OpenAI lists models.", s.answer(s.models)),
	}
}

func (s *asks) runAgent(r *http.Request, in api.AgentRunRequest) (any, error) {
	if in.Wait < 0 || in.Wait > maxWait {
		return nil, usage("wait must be a number of seconds up to %d, not %d", maxWait, in.Wait)
	}

	id, err := s.ask(r, api.RunRequest{Agent: r.PathValue("agent"), Prompt: in.Prompt, Input: in.Input, Session: in.Session, NewSession: in.Fresh})
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
	// If the wait times out, return the current state of the run.
	if errors.Is(err, context.DeadlineExceeded) && r.Context().Err() == nil {
		run, err = s.ledger.Runs.Get(r.Context(), id)
	}
	if err != nil {
		return nil, err
	}
	return s.agentRun(r.Context(), run)
}

// ask starts a run of an agent. It returns an error if no daemon would execute the run.
func (s *asks) ask(r *http.Request, ask api.RunRequest) (int64, error) {
	if strings.TrimSpace(ask.Prompt) == "" {
		return 0, usage("say what the agent %s shall do", ask.Agent)
	}

	if err := readKey(r, &ask); err != nil {
		return 0, err
	}
	st, err := s.status.Status(r.Context())
	if err != nil {
		return 0, err
	}
	if st.Foreground {
		return 0, &api.Error{Status: http.StatusConflict, Message: "no daemon serves this home, so that nobody would execute the run; start one: rouse serve"}
	}

	ask.Trigger = domain.TriggerAPI
	return s.actions.Fire(r.Context(), ask)
}

// awaitEnd waits until a run ends or waits for a person. It calls beat at intervals unless beat is
// nil.
func (s *asks) awaitEnd(ctx context.Context, id int64, beat func() error) (ledger.Run, error) {
	alive := time.NewTicker(s.heartbeat)
	defer alive.Stop()
	for {
		changed := s.ledger.Changed() // before the read, so that no change is missed
		run, err := s.ledger.Runs.Get(ctx, id)
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
		case <-s.stopping:
			return run, &api.Error{Status: http.StatusServiceUnavailable, Message: "the daemon stops; the run " + strconv.FormatInt(run.ID, 10) + " goes on at its next start"}
		case <-ctx.Done():
			return run, ctx.Err()
		}
	}
}

// agentRun converts a run to the response for its caller.
func (s *asks) agentRun(ctx context.Context, run ledger.Run) (api.AgentRun, error) {
	shown, err := s.runs.oneWithArtifacts(ctx, run, nil)
	if err != nil {
		return api.AgentRun{}, err
	}

	out := api.AgentRun{Run: shown, Summary: run.Summary}
	if !run.WaitsForPerson() {
		return out, nil
	}
	items, err := s.ledger.Inbox.OfRun(ctx, run.ID)
	for _, i := range items {
		if i.State == inbox.ItemOpen && i.Kind != inbox.KindInfo {
			item := newItem(i)
			out.Item = &item
			break
		}
	}
	return out, err
}

// chatError is an error in OpenAI's format.
type chatError struct {
	Error struct {
		Message string  `json:"message"`
		Type    string  `json:"type"`
		Code    *string `json:"code"`
	} `json:"error"`
}

func newChatError(e *api.Error) chatError {
	var out chatError
	out.Error.Message, out.Error.Type = e.Message, "invalid_request_error"
	if e.Status >= http.StatusInternalServerError || e.Status == http.StatusFailedDependency {
		out.Error.Type = "run_failed"
	}
	return out
}

// models lists the agents that can be asked.
func (s *asks) models(r *http.Request) (any, error) {
	agents, err := s.catalog.Agents(r.Context())
	out := api.ChatModels{Object: "list", Data: []api.ChatModel{}}
	for _, a := range agents {
		if a.Enabled && a.Model != "" { // other agents cannot answer
			out.Data = append(out.Data, api.ChatModel{ID: a.Name, Object: "model", OwnedBy: "rouse"})
		}
	}
	return out, err
}

// chat handles OpenAI's chat completions.
func (s *asks) chat(w http.ResponseWriter, r *http.Request) {
	ask, err := readChat(r)
	var number int64
	if err == nil {
		number, err = s.ask(r, api.RunRequest{Agent: ask.Model, Prompt: chatPrompt(ask.Messages), Chat: true})
	}
	if err == nil && ask.Stream {
		s.streamChat(w, r, ask, number)
		return
	}

	var run ledger.Run
	var said string
	if err == nil {
		run, said, err = s.awaitChat(r.Context(), number, nil)
	}
	if err != nil {
		s.failChat(w, r, err)
		return
	}
	out := newCompletion(ask, run, "chat.completion")
	stop := "stop"
	out.Choices = []api.ChatChoice{{Message: &api.ChatReply{Role: "assistant", Content: said}, FinishReason: &stop}}
	out.Usage = chatUsage(run)
	s.write(w, r, http.StatusOK, out)
}

// awaitChat waits for the end of a run and returns it with its answer.
func (s *asks) awaitChat(ctx context.Context, number int64, beat func() error) (ledger.Run, string, error) {
	run, err := s.awaitEnd(ctx, number, beat)
	if err != nil {
		return run, "", err
	}
	said, err := s.chatAnswer(ctx, run)
	return run, said, err
}

// readChat decodes a request of an OpenAI client. It ignores model settings that callers cannot
// choose for an agent. It refuses fields that an agent cannot honor, such as tools or several
// choices.
func readChat(r *http.Request) (ask api.ChatRequest, err error) {
	err = json.NewDecoder(r.Body).Decode(&ask)
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return ask, tooLarge(large.Limit)
	case err != nil:
		return ask, usage("the request was not understood: %v", err)
	case len(ask.Tools) > 0:
		return ask, usage("an agent has the tools of its configuration, and takes none from its caller")
	case ask.N > 1:
		return ask, usage("an agent gives one answer, not %d", ask.N)
	case len(ask.Messages) == 0 || ask.Messages[len(ask.Messages)-1].Role != "user":
		return ask, usage("the last message must be of the role user: it says what the agent shall do")
	}
	return ask, nil
}

// chatPrompt converts a conversation to the prompt of one run: the last message of the user,
// preceded by the earlier messages.
func chatPrompt(messages []api.ChatMessage) string {
	last := string(messages[len(messages)-1].Content)
	if len(messages) == 1 || strings.TrimSpace(last) == "" {
		return last
	}

	var out strings.Builder
	out.WriteString("The conversation so far:\n\n")
	for _, m := range messages[:len(messages)-1] {
		fmt.Fprintf(&out, "%s: %s\n\n", m.Role, m.Content)
	}
	out.WriteString("Now:\n\n" + last)
	return out.String()
}

// chatAnswer returns the summary of a run, or its question. It returns an error if the run failed.
func (s *asks) chatAnswer(ctx context.Context, run ledger.Run) (string, error) {
	if run.State != domain.StateFinished {
		asked, err := s.agentRun(ctx, run)
		if err != nil || asked.Item == nil {
			return "The run " + api.ID(run.ID) + " waits for its owner.", err
		}
		return fmt.Sprintf("%s\n\n(The run %d waits for an answer: %s)", asked.Item.Message, run.ID, asked.Item.Action), nil
	}

	if !run.Outcome.Reached() {
		// Clients must not retry automatically, because each retry is another run with its
		// effects.
		return "", &api.Error{Status: http.StatusFailedDependency, Message: fmt.Sprintf("run %d ended in %s: %s", run.ID, run.Outcome, cmp.Or(run.Error, run.Summary))}
	}
	return run.Summary, nil
}

// streamChat responds with server-sent events like OpenAI. The answer is sent when the run is
// over. Until then comments keep the connection alive.
func (s *asks) streamChat(w http.ResponseWriter, r *http.Request, ask api.ChatRequest, number int64) {
	w.Header().Set("Content-Type", mediaEvents)
	w.Header().Set("Cache-Control", "no-store")
	flush := http.NewResponseController(w)
	send := func(v any) error {
		line, err := json.Marshal(v)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(w, "data: %s\n\n", line); err != nil {
			return err
		}
		return flush.Flush()
	}

	err := s.sendChat(r, ask, number, send, func() error {
		if _, err := w.Write([]byte(":\n\n")); err != nil {
			return err
		}
		return flush.Flush()
	})
	if err != nil && r.Context().Err() == nil { // the status has been sent, so report the error in the stream
		err = send(newChatError(s.Failure(r, err)))
	}
	if err == nil {
		_, err = w.Write([]byte("data: [DONE]\n\n"))
	}
	if err != nil && r.Context().Err() == nil {
		s.log.Warn("an answer could not be sent", "path", r.URL.Path, "run", number, "error", err)
	}
}

// sendChat sends the chunks of an answer.
func (s *asks) sendChat(r *http.Request, ask api.ChatRequest, number int64, send func(any) error, beat func() error) error {
	first, err := s.ledger.Runs.Get(r.Context(), number)
	if err != nil {
		return err
	}
	chunk := newCompletion(ask, first, "chat.completion.chunk")
	chunk.Choices = []api.ChatChoice{{Delta: &api.ChatReply{Role: "assistant"}}}
	if err := send(chunk); err != nil {
		return err
	}

	run, said, err := s.awaitChat(r.Context(), number, beat)
	if err != nil {
		return err
	}
	stop := "stop"
	for _, choice := range []api.ChatChoice{{Delta: &api.ChatReply{Content: said}}, {Delta: &api.ChatReply{}, FinishReason: &stop}} {
		chunk.Choices = []api.ChatChoice{choice}
		if err := send(chunk); err != nil {
			return err
		}
	}
	if !ask.StreamOptions.IncludeUsage {
		return nil
	}
	chunk.Choices, chunk.Usage = []api.ChatChoice{}, chatUsage(run)
	return send(chunk)
}

func newCompletion(ask api.ChatRequest, run ledger.Run, object string) api.ChatCompletion {
	return api.ChatCompletion{ID: "run-" + api.ID(run.ID), Object: object, Created: run.QueuedAt.Unix(), Model: ask.Model}
}

func chatUsage(run ledger.Run) *api.ChatUsage {
	u := run.Usage
	return &api.ChatUsage{PromptTokens: u.TokensIn, CompletionTokens: u.TokensOut, TotalTokens: u.TokensIn + u.TokensOut}
}

func (s *asks) failChat(w http.ResponseWriter, r *http.Request, err error) {
	failure := s.Failure(r, err)
	if failure.Kind != api.KindLimit {
		w.Header().Set("X-Should-Retry", "false") // a retry is another run
	}
	setRetryAfter(w, failure)
	s.write(w, r, failure.Status, newChatError(failure))
}
