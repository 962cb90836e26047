package clients

import (
	"context"
	"encoding/json"
	"errors"
	"log"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"rouse/agent/model"
	"rouse/agent/model/modeltest"
	"rouse/agent/preview"
	"rouse/agent/sandbox"
	"rouse/cmd/internal/api"
	"rouse/cmd/internal/cmdtest"
	"rouse/cmd/internal/daemon"
	"rouse/cmd/internal/plan"
	"rouse/internal/domain"
	"rouse/skills/module"
)

// TestMain lets the daemon of a test start confined children, which are this binary.
func TestMain(m *testing.M) {
	sandbox.Child()
	preview.Child()
	module.Child()
	if err := cmdtest.Isolate(); err != nil {
		log.Fatal(err)
	}
	os.Exit(m.Run())
}

const config = `
home: ./home
models:
  - {name: m, provider: openai, model: scripted, base_url: "DOES/v1", api_key: none}
  - {name: q, provider: openai, model: scripted, base_url: "ASKS/v1", api_key: none}
  - {name: b, provider: openai, model: scripted, base_url: "BREAKS/v1", api_key: none}
agents:
  - {name: ann, model: m}
  - {name: quinn, model: q}
  - {name: breaks, model: b}
`

// serve starts a daemon with three agents, and stops it at the end of the test.
func serve(t *testing.T) (base, token string, local *api.Client) {
	t.Helper()
	does := modeltest.New(t, modeltest.Turn{Text: "All of it is done, as it was asked for.", Usage: model.Usage{Input: 7, Output: 3}})
	asks := modeltest.New(t, modeltest.Turn{Calls: []model.Call{{ID: "1", Name: "clarify", Args: json.RawMessage(`{"question":"Which account?","options":["A","B"]}`)}}})
	breaks := modeltest.New(t, modeltest.Turn{Status: http.StatusBadRequest, Raw: `{"error":{"message":"no"}}`})
	dir := cmdtest.Write(t, map[string]string{"rouse.yaml": strings.NewReplacer("DOES", does.URL, "ASKS", asks.URL, "BREAKS", breaks.URL).Replace(config)})
	cfg, err := plan.Load(filepath.Join(dir, "rouse.yaml"), "")
	if err != nil {
		t.Fatal(err)
	}
	d, err := daemon.Open(t.Context(), daemon.Options{Home: string(cfg.Home), Config: cfg, Serves: true, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithCancel(context.Background())
	ready, over := make(chan struct{}), make(chan error, 1)
	go func() { over <- d.Serve(ctx, func(context.Context) error { close(ready); return nil }) }()
	t.Cleanup(func() {
		cancel()
		if err := <-over; err != nil {
			t.Error(err)
		}
		d.Close()
	})
	select {
	case <-ready:
	case err := <-over:
		over <- err
		t.Fatalf("the daemon ended: %v", err)
	}

	raw, err := os.ReadFile(filepath.Join(dir, "home", "dashboard", "token"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSuffix(d.Door.URL("/"), "/"), strings.TrimSpace(string(raw)), api.InProcess(d.Handler)
}

// TestOpenAIClient: OpenAI's own client gets an agent's answer, at once and as a stream, and does not retry a run that
// failed (OSA-28). Its runs have the policy of a chat (OSA-01).
func TestOpenAIClient(t *testing.T) {
	base, token, local := serve(t)
	client := openai.NewClient(option.WithBaseURL(base+"/v1"), option.WithAPIKey(token))
	ask := openai.ChatCompletionNewParams{Model: "ann", Messages: []openai.ChatCompletionMessageParamUnion{
		openai.SystemMessage("Be short."), openai.UserMessage("What is there?"), openai.AssistantMessage("Much."),
		openai.UserMessage([]openai.ChatCompletionContentPartUnionParam{openai.TextContentPart("Do it.")}),
	}, Temperature: openai.Float(0.2)}
	get := func(path string, query url.Values, out any) {
		t.Helper()
		if err := local.Get(t.Context(), path, query, out); err != nil {
			t.Fatal(err)
		}
	}

	answer, err := client.Chat.Completions.New(t.Context(), ask)
	if err != nil {
		t.Fatal(err)
	}
	if len(answer.Choices) != 1 || answer.Choices[0].Message.Content != "All of it is done, as it was asked for." || answer.Choices[0].FinishReason != "stop" || answer.Usage.CompletionTokens == 0 {
		t.Errorf("%+v", answer)
	}
	var d api.RunDetail
	get("/v1/runs/"+strings.TrimPrefix(answer.ID, "run-"), nil, &d)
	if detail := string(d.TriggerDetail); !strings.Contains(detail, "system: Be short.") || !strings.Contains(detail, "assistant: Much.") || !strings.HasSuffix(detail, `Do it.","chat":true}`) {
		t.Errorf("the prompt: %s", detail)
	}

	ask.StreamOptions = openai.ChatCompletionStreamOptionsParam{IncludeUsage: openai.Bool(true)}
	stream := client.Chat.Completions.NewStreaming(t.Context(), ask)
	var all openai.ChatCompletionAccumulator
	for stream.Next() {
		all.AddChunk(stream.Current())
	}
	if err := stream.Err(); err != nil || len(all.Choices) != 1 || all.Choices[0].Message.Content != answer.Choices[0].Message.Content || all.Usage.TotalTokens == 0 {
		t.Errorf("%+v, %v", all.ChatCompletion, err)
	}

	models, err := client.Models.List(t.Context())
	if err != nil || len(models.Data) != 3 || models.Data[0].ID != "ann" {
		t.Errorf("%+v, %v", models, err)
	}

	// A question is an answer, and ends its run: the caller sends it again with the answer (OSA-06).
	ask.Model = "quinn"
	q, err := client.Chat.Completions.New(t.Context(), ask)
	if err != nil || q.Choices[0].Message.Content != "Which account?\n- A\n- B" {
		t.Fatalf("%+v, %v", q, err)
	}
	var items []api.Item
	get("/v1/runs/"+strings.TrimPrefix(q.ID, "run-"), nil, &d)
	get("/v1/inbox", nil, &items)
	if d.State != domain.StateFinished || d.Outcome != domain.OutcomePartial || len(items) > 0 {
		t.Errorf("the run of a question: %+v, %d items", d.Run, len(items))
	}

	// An unknown agent, tools of the caller and a run that fails are errors.
	var failure *openai.Error
	ask.Model = "nobody"
	if _, err := client.Chat.Completions.New(t.Context(), ask); !errors.As(err, &failure) || failure.StatusCode != http.StatusNotFound || !strings.Contains(failure.Message, "nobody") {
		t.Errorf("%v", err)
	}
	ask.Model, ask.Tools = "ann", []openai.ChatCompletionToolUnionParam{openai.ChatCompletionFunctionTool(openai.FunctionDefinitionParam{Name: "x"})}
	if _, err := client.Chat.Completions.New(t.Context(), ask); !errors.As(err, &failure) || failure.StatusCode != http.StatusBadRequest {
		t.Errorf("tools of the caller: %v", err)
	}

	ask.Model, ask.Tools = "breaks", nil
	if _, err := client.Chat.Completions.New(t.Context(), ask); !errors.As(err, &failure) || failure.StatusCode != http.StatusFailedDependency || failure.Type != "run_failed" {
		t.Errorf("a run that fails: %v", err)
	}
	var runs []api.Run
	get("/v1/runs", url.Values{"agent": {"breaks"}}, &runs)
	if len(runs) != 1 {
		t.Errorf("the client started %d runs", len(runs))
	}
	stream = client.Chat.Completions.NewStreaming(t.Context(), ask)
	for stream.Next() {
	}
	if err := stream.Err(); err == nil || !strings.Contains(err.Error(), "ended in") {
		t.Errorf("the stream of a run that fails: %v", err)
	}
}
