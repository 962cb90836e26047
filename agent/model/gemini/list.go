package gemini

import (
	"context"
	"strings"

	"rouse/agent/model"
)

type listed struct {
	Name       string `json:"name"` // models/…
	InputLimit int    `json:"inputTokenLimit"`
}

// List implements model.Lister.
func (p *Provider) List(ctx context.Context) (model.Listing, error) {
	l := p.client.Listing()
	var one listed
	found, err := p.client.Ask(ctx, "v1beta/"+resource(p.client.Model()), nil, &one, &l)
	if err != nil {
		return l, err
	}
	if found && one.Name != "" {
		l.Known, l.Has, l.Window = true, true, one.InputLimit
		return l, nil
	}

	var all struct {
		Models []listed `json:"models"`
	}
	if found, err = p.client.Ask(ctx, "v1beta/models?pageSize=1000", nil, &all, &l); err != nil || !found || all.Models == nil {
		return l, err
	}

	l.Known = true
	for _, m := range all.Models {
		l.Models = append(l.Models, strings.TrimPrefix(m.Name, "models/"))
	}
	return l, nil
}
