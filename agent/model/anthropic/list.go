package anthropic

import (
	"context"
	"net/url"

	"rouse/agent/model"
)

type listed struct {
	ID       string `json:"id"`
	MaxInput int    `json:"max_input_tokens"`
}

// List implements model.Lister. The model is asked for by its name first, which may be another one of it
// (an alias without a date), and is then not in the list.
func (p *Provider) List(ctx context.Context) (model.Listing, error) {
	l := p.client.Listing()
	var one listed
	found, err := p.client.Ask(ctx, "v1/models/"+url.PathEscape(p.client.Model()), nil, &one, &l)
	if err != nil {
		return l, err
	}
	if found && one.ID != "" {
		l.Known, l.Has, l.Window = true, true, one.MaxInput
		return l, nil
	}

	var all struct {
		Data []listed `json:"data"`
	}
	if found, err = p.client.Ask(ctx, "v1/models?limit=1000", nil, &all, &l); err != nil || !found || all.Data == nil {
		return l, err
	}

	l.Known = true
	for _, m := range all.Data {
		l.Models = append(l.Models, m.ID)
	}
	return l, nil
}
