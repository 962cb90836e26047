package openai

import (
	"cmp"
	"context"

	"rouse/agent/model"
	"rouse/agent/model/wire"
)

// listed is a model in the list of an OpenAI-compatible server; what it says beyond id differs between servers.
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

// list asks for the models of a server.
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
		// llama.cpp has one model, and answers with it whatever it is called.
		if m.ID == client.Model() || m.OwnedBy == "llamacpp" && len(all.Data) == 1 {
			l.Has, l.Window = true, cmp.Or(m.MaxModelLen, m.ContextLength, m.Meta.Context, m.Meta.Trained)
		}
	}
	return l, nil
}

// List implements model.Lister.
func (p *Provider) List(ctx context.Context) (model.Listing, error) { return list(ctx, p.client) }

// List implements model.Lister.
func (p *Responses) List(ctx context.Context) (model.Listing, error) { return list(ctx, p.client) }
