package plan

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"

	"rouse/agent"
	"rouse/agent/model"
	"rouse/agent/redact"
	"rouse/agentdb/schema"
	"rouse/cmd/internal/config"
)

// FirstRequest is the first request of a job to its model, with the sizes of its parts.
type FirstRequest struct {
	Job     string          `json:"job"`
	Agent   string          `json:"agent"`
	Model   string          `json:"model"`
	Bytes   int             `json:"bytes"` // size of the body
	System  int             `json:"system_bytes"`
	Task    int             `json:"task_bytes"`
	Tools   int             `json:"tools_bytes"`
	EachOf  []ToolBytes     `json:"tools"`
	Other   int             `json:"other_bytes"`       // model name, options and punctuation
	Missing []string        `json:"missing,omitempty"` // parts that the run adds when it starts
	Body    json.RawMessage `json:"body"`
}

// ToolBytes is the size of a tool in a request.
type ToolBytes struct {
	Name  string `json:"name"`
	Bytes int    `json:"bytes"`
}

// FirstRequestOf returns the first request of a job, encoded for the server of its model, without
// sending it. The schema tables describes the agent's database.
func FirstRequestOf(ctx context.Context, cfg *config.Config, log *slog.Logger, job string, tables schema.Schema) (FirstRequest, error) {
	p, err := New(cfg, log)
	if err != nil {
		return FirstRequest{}, err
	}
	first, err := agent.FirstRequestOf(p.Runner, job, filepath.Join(string(cfg.Home), "mcp"), tables) //nolint:contextcheck // it starts no server
	if err != nil {
		return FirstRequest{}, err
	}

	out := FirstRequest{Job: job, Agent: first.Agent, Model: first.Model, Missing: first.Missing}
	for _, m := range cfg.Models {
		if string(m.Name) != first.Model {
			continue
		}
		if m.Provider == "replay" { // a recording has no request, so use the most common protocol
			m.Provider, m.Model, m.BaseURL = "openai", string(m.Name), "http://localhost/v1"
		}
		if out.Body, err = encodedRequest(ctx, log, m, first.Request); err != nil {
			return out, err
		}
	}

	out.Bytes, out.System, out.Task = len(out.Body), jsonBytes(first.Request.System), jsonBytes(first.Request.Messages[0].Text)
	encoded := encodedTools(out.Body, len(first.Request.Tools))
	for i, t := range first.Request.Tools {
		one := ToolBytes{Name: t.Name}
		if encoded != nil {
			one.Bytes = len(encoded[i])
		}
		out.EachOf, out.Tools = append(out.EachOf, one), out.Tools+one.Bytes
	}
	out.Other = out.Bytes - out.System - out.Task - out.Tools
	out.Body = redact.New(cfg.Secrets.Values).JSON(out.Body) // redact for people; the sizes are those of the original request
	return out, nil
}

// jsonBytes returns the length of text in a JSON request.
func jsonBytes(text string) int {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if e.Encode(text) != nil {
		return len(text)
	}
	return b.Len() - len("\n")
}

// encodedTools returns the tools in a body, or nil if it does not contain count tools. Servers
// differ in the name and nesting of the list.
func encodedTools(raw json.RawMessage, count int) []json.RawMessage {
	var fields struct {
		Tools []json.RawMessage `json:"tools"`
	}
	if json.Unmarshal(raw, &fields) != nil {
		return nil
	}
	if len(fields.Tools) == count {
		return fields.Tools
	}
	var nested struct {
		List []json.RawMessage `json:"functionDeclarations"`
	}
	if len(fields.Tools) == 1 && json.Unmarshal(fields.Tools[0], &nested) == nil && len(nested.List) == count {
		return nested.List
	}
	return nil
}

// encodedRequest returns the body that the adapter of a model would send.
func encodedRequest(ctx context.Context, log *slog.Logger, m config.Model, r model.Request) (json.RawMessage, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	taken := &bodyTaker{stop: cancel}
	provider, err := NewProvider(m, log, taken)
	if err != nil {
		return nil, fmt.Errorf("%s: model %s: %w", m.At, m.Name, err)
	}
	for _, err := range provider.Stream(ctx, r) {
		if err != nil && taken.body == nil {
			return nil, err
		}
	}
	if taken.body == nil {
		return nil, fmt.Errorf("model %s: its adapter has made no request", m.Name)
	}
	return taken.body, nil
}

// bodyTaker is a transport that stores the first body and sends nothing.
type bodyTaker struct {
	body json.RawMessage
	stop context.CancelFunc
}

// RoundTrip implements http.RoundTripper.
func (b *bodyTaker) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body == nil {
		return nil, errors.New("nothing is sent")
	}
	defer req.Body.Close()
	raw, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	if b.body == nil {
		b.body = raw
	}
	b.stop()
	return nil, context.Canceled
}
