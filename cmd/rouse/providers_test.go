package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"rouse/agent/model"
	"rouse/agent/model/modeltest"
	"rouse/cmd/internal/api"
	"rouse/cmd/internal/cmdtest"
	"rouse/cmd/internal/endtoend"
)

// TestProviders executes a run with each provider. A second attempt resumes from the record, which
// holds provider data that must be sent back. The server refuses a message without it.
func TestProviders(t *testing.T) {
	for provider, told := range map[string]string{
		"openai": `"max_tokens":2048`, "openai, api: responses": `"max_output_tokens":2048`, "anthropic": `"max_tokens":2048`, "gemini": `"maxOutputTokens":2048`, "ollama": `"options":{"num_ctx":8192,"num_predict":2048}`,
	} {
		t.Run(provider, func(t *testing.T) {
			s := modeltest.New(t,
				modeltest.Turn{Text: "I make a table.", Opaque: "c2lnbmVk", Usage: model.Usage{Input: 100, Output: 20}, Calls: []model.Call{
					{ID: "1", Name: "db_create_table", Args: json.RawMessage(`{"name":"t","purpose":"a test","columns":[{"name":"a","type":"TEXT"}]}`)},
					{ID: "2", Name: "db_insert", Args: json.RawMessage(`{"table":"t","row":{"a":"x"}}`)}}},
				modeltest.Turn{Fail: model.KindAuth},
				modeltest.Turn{Calls: []model.Call{{ID: "3", Name: "complete", Args: json.RawMessage(`{"summary":"Made a table with one row in it."}`)}}, Opaque: "c2lnbmVkMg", Usage: model.Usage{Input: 10, Output: 2}})

			base := s.URL
			if strings.HasPrefix(provider, "openai") {
				base += "/v1"
			}

			config := filepath.Join(cmdtest.Write(t, map[string]string{"rouse.yaml": `version: 1
home: ./home
models: [{name: m, provider: ` + provider + `, model: scripted, base_url: "` + base + `", api_key: "${TEST_MODEL_KEY}", max_output: 2048, context_window: 8192}]
agents: [{name: bookkeeper, instructions: Keep the books.}]
jobs: [{name: books, agent: bookkeeper, prompt: Make a table., retry: {attempts: 2, backoff: 1ms}}]
`}), "rouse.yaml")

			t.Setenv("TEST_MODEL_KEY", "sk-canary-0123456789")
			p := endtoend.Rouse(t, "run", "books", "--wait", "--config", config)
			if err := p.Run(); err != nil {
				t.Fatalf("%v\n%s%s", err, p.Out.String(), p.Err.String())
			}

			var d api.RunDetail
			endtoend.RunJSON(t, &d, "show", "1", "--json", "--config", config)
			if d.Outcome != "success" || d.Summary != "Made a table with one row in it." || d.TokensIn != 110 || d.TokensOut != 22 || len(d.Attempts) != 2 {
				t.Errorf("run: %+v", d)
			}
			if n := endtoend.CountRows(t, config, "select count(*) n from t"); n != 1 {
				t.Errorf("%d rows", n)
			}

			requests := s.Requests()
			for _, want := range []string{"Keep the books.", "Make a table.", `"db_insert"`, told} {
				if !strings.Contains(string(requests[0]), want) {
					t.Errorf("the model was not told %s", want)
				}
			}

			if len(requests) != 3 || strings.Contains(p.Out.String()+p.Err.String(), "canary") {
				t.Errorf("%d requests; %s%s", len(requests), p.Out.String(), p.Err.String())
			}
		})
	}
}

// TestFallbackModel checks a provider without credit. The next model takes over, and both the run
// and its owner are told. A wrong key ends the run with the error of the provider, but without the
// key.
func TestFallbackModel(t *testing.T) {
	made := model.Call{ID: "1", Name: "complete", Args: json.RawMessage(`{"summary":"The small one did all the books of the day."}`)}
	small := modeltest.New(t, modeltest.Turn{Calls: []model.Call{made}, Usage: model.Usage{Input: 10, Output: 2}})
	quota := modeltest.New(t, modeltest.Turn{Status: 429, Header: map[string]string{"Retry-After": "0"}, Raw: `{"error":{"code":"insufficient_quota","message":"You exceeded your current quota."}}`})
	key := modeltest.New(t, modeltest.Turn{Fail: model.KindAuth})
	config := filepath.Join(cmdtest.Write(t, map[string]string{"rouse.yaml": `version: 1
home: ./home
models:
  - {name: big, provider: openai, api: responses, model: gpt-5, base_url: "` + quota.URL + `/v1", api_key: "${TEST_MODEL_KEY}", fallback: small}
  - {name: locked, provider: anthropic, model: claude-sonnet-5, base_url: "` + key.URL + `", api_key: "${TEST_MODEL_KEY}", fallback: small}
  - {name: small, provider: ollama, model: scripted, base_url: "` + small.URL + `"}
agents: [{name: clerk}]
jobs:
  - {name: books, agent: clerk, prompt: Do the books.}
  - {name: shut, agent: clerk, prompt: Do the books., model: locked}
`}), "rouse.yaml")

	t.Setenv("TEST_MODEL_KEY", "sk-canary-0123456789")
	var shown, failed string
	for _, args := range [][]string{{"run", "books", "--wait"}, {"show", "1"}, {"run", "shut", "--wait"}} {
		p := endtoend.Rouse(t, append(args, "--config", config)...)
		err := p.Run()
		if out := p.Out.String() + p.Err.String(); args[0] == "show" {
			shown = out
		} else if failed = out; (err != nil) != (args[1] == "shut") || strings.Contains(out, "canary") {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
	}

	for _, want := range []string{"step 1 (small)", "[Fallback] small answers from here on in the place of big", "You exceeded your current quota.", "The small one did all the books of the day."} {
		if !strings.Contains(shown, want) {
			t.Errorf("show lacks %q:\n%s", want, shown)
		}
	}

	if !strings.Contains(failed, "invalid x-api-key: [secret]; check api_key") || len(small.Requests()) != 1 {
		t.Errorf("%d requests; %s", len(small.Requests()), failed)
	}
}

// TestPictureByAManualCall checks that a manual call describes a picture and does not print its
// bytes.
func TestPictureByAManualCall(t *testing.T) {
	t.Parallel()
	dir := cmdtest.Write(t, map[string]string{"rouse.yaml": "version: 1\nhome: ./home\nagents: [{name: clerk, workdir: ./work}]\n", "work/a.png": "\x89PNG\r\n\x1a\n" + strings.Repeat("x", 100_000) + "IEND"})
	p := endtoend.Rouse(t, "call", "clerk", "file_read", `{"path":"a.png"}`, "--config", filepath.Join(dir, "rouse.yaml"))
	if err := p.Run(); err != nil {
		t.Fatalf("%v\n%s%s", err, p.Out.String(), p.Err.String())
	}

	out := p.Out.String()
	if len(out) > 1000 || !strings.Contains(out, `"media_type": "image/png"`) || !strings.Contains(out, `"bytes": 100012`) {
		t.Errorf("%.2000s", out)
	}
}
