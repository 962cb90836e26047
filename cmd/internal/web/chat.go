package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"rouse/agentdb/ledger"
	"rouse/cmd/internal/api"
	"rouse/internal/domain"
)

// chatError is an error as OpenAI words it, with ours beside it.
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

// models are the agents that can be asked.
func (s *Server) models(r *http.Request) (any, error) {
	agents, err := s.backend.Agents(r.Context())
	out := api.ChatModels{Object: "list", Data: []api.ChatModel{}}
	for _, a := range agents {
		if a.Enabled && a.Model != "" { // nobody answers for any other
			out.Data = append(out.Data, api.ChatModel{ID: a.Name, Object: "model", OwnedBy: "rouse"})
		}
	}
	return out, err
}

// chat answers as OpenAI's chat completions do.
func (s *Server) chat(w http.ResponseWriter, r *http.Request) {
	ask, err := readChat(r)
	if err != nil {
		s.failChat(w, r, err)
		return
	}

	number, err := s.ask(r, api.RunRequest{Agent: ask.Model, Prompt: chatPrompt(ask.Messages), Chat: true})
	if err != nil {
		s.failChat(w, r, err)
		return
	}

	if ask.Stream {
		s.streamChat(w, r, ask, number)
		return
	}
	run, err := s.awaitEnd(r.Context(), number, nil)
	if err != nil {
		s.failChat(w, r, err)
		return
	}
	said, err := s.chatAnswer(r.Context(), run)
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

// readChat reads what clients of OpenAI send. Settings of a model that an agent does not take from its caller are
// left out; what would mean something else than it says is refused.
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

// chatPrompt is a conversation as the prompt of one run: what the user said last, and before it what was said so far.
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

// chatAnswer is the end of a run as a text: its summary, or what it asks. A run that failed is an error.
func (s *Server) chatAnswer(ctx context.Context, run ledger.Run) (string, error) {
	if run.State != domain.StateFinished {
		asked, err := s.agentRun(ctx, run)
		if err != nil || asked.Item == nil {
			return "The run " + id(run.ID) + " waits for its owner.", err
		}
		return fmt.Sprintf("%s\n\n(The run %d waits for an answer: %s)", asked.Item.Message, run.ID, asked.Item.Action), nil
	}

	if !run.Outcome.Reached() {
		why := run.Error
		if why == "" {
			why = run.Summary
		}
		// Not a status after which clients try again by themselves: another try is another run, with its effects.
		return "", &api.Error{Status: http.StatusFailedDependency, Message: fmt.Sprintf("run %d ended in %s: %s", run.ID, run.Outcome, why)}
	}
	return run.Summary, nil
}

// streamChat answers by server-sent events, as OpenAI does: the answer of a run is there when it is over, and until
// then comments keep the connection.
func (s *Server) streamChat(w http.ResponseWriter, r *http.Request, ask api.ChatRequest, number int64) {
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
	if err != nil && r.Context().Err() == nil { // the status is out: what failed is said in the stream
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
func (s *Server) sendChat(r *http.Request, ask api.ChatRequest, number int64, send func(any) error, beat func() error) error {
	first, err := s.ledger.Run(r.Context(), number)
	if err != nil {
		return err
	}
	chunk := newCompletion(ask, first, "chat.completion.chunk")
	chunk.Choices = []api.ChatChoice{{Delta: &api.ChatReply{Role: "assistant"}}}
	if err := send(chunk); err != nil {
		return err
	}

	run, err := s.awaitEnd(r.Context(), number, beat)
	if err != nil {
		return err
	}
	said, err := s.chatAnswer(r.Context(), run)
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
	return api.ChatCompletion{ID: "run-" + id(run.ID), Object: object, Created: run.QueuedAt.Unix(), Model: ask.Model}
}

func chatUsage(run ledger.Run) *api.ChatUsage {
	u := run.Usage
	return &api.ChatUsage{PromptTokens: u.TokensIn, CompletionTokens: u.TokensOut, TotalTokens: u.TokensIn + u.TokensOut}
}

func (s *Server) failChat(w http.ResponseWriter, r *http.Request, err error) {
	failure := s.Failure(r, err)
	if failure.Kind != api.KindLimit {
		w.Header().Set("X-Should-Retry", "false") // another try is another run
	}
	setRetryAfter(w, failure)
	s.write(w, r, failure.Status, newChatError(failure))
}
