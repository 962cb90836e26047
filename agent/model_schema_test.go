package agent_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rouse/agent"
	"rouse/agent/model"
	"rouse/agent/model/anthropic"
	"rouse/agent/model/gemini"
	"rouse/agent/model/modeltest"
	"rouse/agent/model/ollama"
	"rouse/agent/model/openai"
	"rouse/agent/model/wire"
	"rouse/agent/tool"
	"rouse/agent/tool/mcp"
	"rouse/internal/domain"
)

// TestEveryServerReadsTheTools sends all tools of this version, and the tools of published MCP
// servers, to a strict server of each kind, with full and with short descriptions.
func TestEveryServerReadsTheTools(t *testing.T) {
	t.Parallel()
	var tools []tool.Tool
	add := func(name, description string, schema json.RawMessage) {
		t.Helper()
		one, err := tool.DefineBySchema(tool.Spec{Name: name, Description: description, Effect: domain.EffectRead, Class: tool.ClassOther, Scope: tool.ScopeRun, Writes: tool.WritesNothing, Schema: schema},
			func(context.Context, tool.Invocation, json.RawMessage) (tool.Envelope, error) {
				return tool.Success(nil), nil
			})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		tools = append(tools, one)
	}
	for _, s := range agent.Specs() {
		if s.Open { // agents do not get these tools
			continue
		}
		args, err := s.Arguments()
		if err != nil {
			t.Fatal(err)
		}
		schema, err := args.Schema()
		if err != nil {
			t.Fatal(err)
		}
		add(strings.ReplaceAll(s.Name, ".", "_"), s.Description, schema)
	}
	own := len(tools)

	lists, err := filepath.Glob("tool/mcp/testdata/tools/*.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range lists {
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var listed []json.RawMessage
		if err := json.Unmarshal(raw, &listed); err != nil {
			t.Fatal(err)
		}
		server := strings.TrimSuffix(filepath.Base(path), ".json")
		for _, one := range listed {
			var d mcp.Definition
			if err := json.Unmarshal(one, &d); err != nil {
				t.Fatal(err)
			}
			d.Said = one
			schema, err := d.Schema(server)
			if err != nil {
				t.Fatalf("%s of %s: %v", d.Name, server, err)
			}
			add(mcp.ToolName(server, d.Name), "of a server", schema)
		}
	}
	if own < 30 || len(tools) < own+80 {
		t.Fatalf("there are %d tools, %d of them of this version", len(tools), own)
	}

	registry, err := tool.NewRegistry(tools...)
	if err != nil {
		t.Fatal(err)
	}
	for name, open := range map[string]func(wire.Endpoint) (model.Provider, error){
		"openai":    func(e wire.Endpoint) (model.Provider, error) { return openai.New(e) },
		"responses": func(e wire.Endpoint) (model.Provider, error) { return openai.NewResponses(e) },
		"anthropic": func(e wire.Endpoint) (model.Provider, error) { return anthropic.New(e) },
		"gemini":    func(e wire.Endpoint) (model.Provider, error) { return gemini.New(e) },
		"ollama":    func(e wire.Endpoint) (model.Provider, error) { return ollama.New(ollama.Options{Endpoint: e}) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := modeltest.New(t, modeltest.Turn{Text: "done"})
			e := wire.Endpoint{BaseURL: s.URL, Model: "scripted"}
			if name == "openai" || name == "responses" {
				e.BaseURL += "/v1"
			}
			p, err := open(e)
			if err != nil {
				t.Fatal(err)
			}
			for _, told := range [][]model.Tool{registry.ModelTools(), registry.Briefly().ModelTools()} {
				a := modeltest.Ask(t, t.Context(), p, model.Request{Messages: []model.Message{{Role: model.RoleUser, Text: "Go."}}, Tools: told})
				if a.Err != nil {
					t.Error(a.Err)
				}
			}
		})
	}
}
