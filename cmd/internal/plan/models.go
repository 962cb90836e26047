package plan

import (
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"rouse/agent/model"
	"rouse/agent/model/anthropic"
	"rouse/agent/model/gemini"
	"rouse/agent/model/ollama"
	"rouse/agent/model/openai"
	"rouse/agent/model/replay"
	"rouse/agent/model/wire"
	agentplan "rouse/agent/plan"
	"rouse/cmd/internal/config"
)

// NewModels opens the configured models and returns them by name.
func NewModels(cfg *config.Config, log *slog.Logger) (map[string]*agentplan.Model, error) {
	out := map[string]*agentplan.Model{}
	for i, m := range cfg.Models {
		provider, err := NewProvider(m, log, nil)
		if err != nil {
			return nil, fmt.Errorf("%s: model %s: %w", m.At, m.Name, err)
		}

		// A model without a known price costs 0 here. The configuration does not allow such a model
		// if there is a money limit.
		rate, _ := m.Rate()
		_, listed := model.Lookup(m.Model) // for unlisted models, the server knows the context size
		out[string(m.Name)] = &agentplan.Model{Name: string(m.Name), Provider: provider, MaxOutput: m.MaxOutput, Window: m.Window(), Temperature: m.Temperature, Price: rate,
			Where: cfg.Where(m.At), Obstacles: SecretObstacles(cfg, fmt.Sprintf("models[%d].", i)), Nearby: m.Provider == "ollama", AsksWindow: !listed}
	}

	// A fallback may be declared after the model that names it.
	for _, m := range cfg.Models {
		out[string(m.Name)].Fallback = out[m.Fallback]
	}

	return out, nil
}

// NewProvider returns a client for the protocol of a model. If transport is nil, the provider has
// its own connection pool.
func NewProvider(m config.Model, log *slog.Logger, transport http.RoundTripper) (model.Provider, error) {
	e := wire.Endpoint{
		BaseURL: m.BaseURL, APIKey: m.APIKey, Model: m.Model, Headers: m.Headers,
		Timeout: time.Duration(m.Timeout), Idle: time.Duration(m.Idle), Logger: log, Transport: transport,
	}
	switch m.Provider {
	case "replay":
		return replay.Open(string(m.Recording))
	case "anthropic":
		return anthropic.New(e)
	case "gemini":
		return gemini.New(e)
	case "ollama":
		return ollama.New(ollama.Options{Endpoint: e, ContextWindow: m.ContextWindow})
	}

	// All other providers use one of the two protocols of OpenAI.
	if m.API == "responses" {
		return openai.NewResponses(e)
	}
	return openai.New(e)
}
