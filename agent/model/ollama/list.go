package ollama

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"rouse/agent/model"
)

// List implements model.Lister. No model is loaded for it.
func (p *Provider) List(ctx context.Context) (model.Listing, error) {
	l := p.client.Listing()
	var about struct {
		Capabilities []string                   `json:"capabilities"`
		Info         map[string]json.RawMessage `json:"model_info"`
	}
	found, err := p.client.Ask(ctx, "api/show", map[string]string{"model": p.client.Model()}, &about, &l)
	if err != nil {
		return l, err
	}

	if found && about.Info != nil {
		l.Known, l.Has, l.NoTool = true, true, about.Capabilities != nil && !slices.Contains(about.Capabilities, "tools")
		for key, value := range about.Info {
			if strings.HasSuffix(key, ".context_length") { // the architecture comes before it
				_ = json.Unmarshal(value, &l.Window) // of another kind it says nothing
			}
		}
		return l, nil
	}

	var all struct {
		Models []struct {
			Name string `json:"name"`
		} `json:"models"`
	}
	if found, err = p.client.Ask(ctx, "api/tags", nil, &all, &l); err != nil || !found || all.Models == nil {
		return l, err
	}

	l.Known = true
	for _, m := range all.Models {
		l.Models = append(l.Models, m.Name)
	}
	return l, nil
}
