package agent_test

import (
	"context"
	"encoding/json"
	"iter"
	"path/filepath"
	"strings"
	"testing"

	"rouse/agent"
	"rouse/agent/loop"
	"rouse/agent/model"
	"rouse/agent/model/anthropic"
	"rouse/agent/model/gemini"
	"rouse/agent/model/modeltest"
	"rouse/agent/model/ollama"
	"rouse/agent/model/openai"
	"rouse/agent/tool"
	"rouse/agent/tool/file"
	"rouse/internal/ledger"
)

// dialects returns the API dialects of models.
func dialects() []string {
	return []string{"openai", "openai responses", "anthropic", "gemini", "ollama"}
}

// piped returns a bench with a model that uses a dialect and is reached in memory, so that time may
// be virtual.
func piped(t *testing.T, dialect string, turns ...modeltest.Turn) *bench {
	t.Helper()
	s, way := modeltest.Pipe(t, turns...)
	e := openai.Options{BaseURL: s.URL, Model: "scripted", APIKey: "sk-canary", Transport: way}
	var p model.Provider
	var err error
	switch dialect {
	case "openai":
		e.BaseURL += "/v1"
		p, err = openai.New(e)
	case "openai responses":
		e.BaseURL += "/v1"
		p, err = openai.NewResponses(e)
	case "anthropic":
		p, err = anthropic.New(e)
	case "gemini":
		p, err = gemini.New(e)
	case "ollama":
		p, err = ollama.New(ollama.Options{Endpoint: e})
	}
	if err != nil {
		t.Fatal(err)
	}

	return furnish(t, s, p)
}

// follower is a model that uses only the result of a listing. It opens the first listed folder,
// until there is a file to read, with the path as listed.
type follower struct{}

// Stream implements model.Provider.
func (follower) Stream(_ context.Context, r model.Request) iter.Seq2[model.Event, error] {
	return func(yield func(model.Event, error) bool) {
		var e struct {
			Result struct {
				Kind, Text string
				Entries    []struct{ Path, Type string }
			}
		}

		path := "."
		if last := r.Messages[len(r.Messages)-1]; last.Role == model.RoleTool {
			if err := json.Unmarshal([]byte(last.Text), &e); err != nil {
				yield(model.Event{}, err) // the message is a notice, which should not have been sent
				return
			}

			if e.Result.Kind == "file" || len(e.Result.Entries) == 0 {
				yield(model.Event{Text: "It says: " + e.Result.Text}, nil)
				return
			}
			path = e.Result.Entries[0].Path
		}

		args, err := json.Marshal(map[string]any{"path": path, "max_depth": 1})
		if err != nil {
			yield(model.Event{}, err)
			return
		}

		yield(model.Event{Call: &model.Call{Name: "file_read", Args: args}}, nil)
	}
}

// TestStructureAlone checks OSA-14: without advice, a listing alone leads to a file three folders
// down, because its paths can be used unchanged.
func TestStructureAlone(t *testing.T) {
	t.Parallel()
	b := furnish(t, nil, nil)
	b.put("work/a/b/c/found.txt", "the treasure")
	roots, err := tool.NewRoots(filepath.Join(b.dir, "work"), nil)
	if err != nil {
		t.Fatal(err)
	}

	registry, err := tool.NewRegistry(must[[]tool.Tool](t)(file.Tools(file.Options{Roots: roots, Log: b.ledger.FileOps, Artifacts: b.ledger.Artifacts}))...)
	if err != nil {
		t.Fatal(err)
	}

	_, a, err := b.ledger.StartAttempt(t.Context(), b.enqueue(ledger.Request{Agent: "clerk", Detail: ledger.TriggerDetail{Prompt: "Find it."}}))
	if err != nil {
		t.Fatal(err)
	}

	policy := loop.Headless()
	policy.Advice = false
	res, err := loop.Run(t.Context(), loop.Options{Provider: follower{}, Registry: registry, Recorder: agent.NewRecorder(b.ledger, a, nil, true), Policy: policy,
		Messages: []model.Message{{Role: model.RoleUser, Text: "Find it."}}, Invocation: tool.Invocation{Run: a.Run, Attempt: a.Number}})
	if err != nil || res.Outcome != "success" || !strings.Contains(res.Summary, "the treasure") || res.Calls != 5 {
		t.Errorf("%+v %v", res, err)
	}
}
