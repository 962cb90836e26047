package openai

import (
	"cmp"
	"context"

	"rouse/agent/model"
	"rouse/agent/model/wire"
)

// listed is a model in the list of an OpenAI-compatible server. Fields other than id depend on the
// server.
type listed struct {
	ID            string `json:"id"`
	OwnedBy       string `json:"owned_by"`
	MaxModelLen   int    `json:"max_model_len"`  // vLLM
	ContextLength int    `json:"context_length"` // OpenRouter and others
	Meta          struct {
		Context int `json:"n_ctx"`
		Trained int `json:"n_ctx_train"`
	} `json:"meta"` // llama.cpp
}

// list returns the models of a server, and the size of the context that it gives the model.
func list(ctx context.Context, client *wire.Client) (model.Listing, error) {
	l := client.Listing()
	var all struct {
		Data []listed `json:"data"`
	}
	found, err := client.Ask(ctx, "models", nil, &all, &l)
	if err != nil || !found || all.Data == nil {
		return l, err
	}

	l.Known = true
	for _, m := range all.Data {
		l.Models = append(l.Models, m.ID)
		// llama.cpp runs one model and accepts any name for it.
		if m.ID == client.Model() || m.OwnedBy == ownerLlamaCPP && len(all.Data) == 1 {
			l.Has, l.Window = true, cmp.Or(m.MaxModelLen, m.ContextLength, m.Meta.Context, m.Meta.Trained)
			if n := runningContext(ctx, client, m.OwnedBy, &l); n > 0 {
				l.Window = n
			}
		}
	}
	return l, nil
}

// Servers are identified by the owner of their models.
const (
	ownerLlamaCPP = "llamacpp"
	ownerLMStudio = "organization_owner"
	ownerOllama   = "library"
)

// runningContext asks a local server for the context size it was started with, which may be smaller
// than the model's maximum. Zero means unknown.
func runningContext(ctx context.Context, client *wire.Client, owner string, l *model.Listing) int {
	path := map[string]string{ownerLMStudio: "../api/v0/models", ownerOllama: "../api/ps"}[owner]
	switch {
	case owner == ownerLlamaCPP:
		var props struct {
			Settings struct {
				Context int `json:"n_ctx"` // per request, if several requests share the server
			} `json:"default_generation_settings"`
		}
		_, _ = client.Ask(ctx, "../props", nil, &props, l) // 0 without a response
		return props.Settings.Context
	case path == "":
		return 0
	}

	type running struct {
		ID, Name string
		Loaded   int `json:"loaded_context_length"` // LM Studio
		Context  int `json:"context_length"`        // Ollama
	}
	var all struct{ Data, Models []running }
	_, _ = client.Ask(ctx, path, nil, &all, l) // empty without a response
	for _, m := range append(all.Data, all.Models...) {
		if cmp.Or(m.ID, m.Name) == client.Model() {
			return cmp.Or(m.Loaded, m.Context)
		}
	}
	return 0
}

// List implements model.Lister.
func (p *Provider) List(ctx context.Context) (model.Listing, error) { return list(ctx, p.client) }

// List implements model.Lister.
func (p *Responses) List(ctx context.Context) (model.Listing, error) { return list(ctx, p.client) }
