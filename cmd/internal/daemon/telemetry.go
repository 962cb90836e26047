package daemon

import (
	"context"
	"slices"

	"rouse/cmd/internal/buildinfo"
	"rouse/cmd/internal/config"
	"rouse/cmd/internal/traces"
)

// newTraces returns the configured traces, or nil if traces are off.
func (d *Daemon) newTraces(ctx context.Context) (*traces.Traces, error) {
	to := d.Current().Config.Telemetry.OTLP
	if to == nil {
		return nil, nil
	}
	return traces.New(ctx, traces.Options{Ledger: d.ledger, URL: to.TracesURL(), Headers: to.Headers, Model: func(name string) (traces.Model, bool) { return tracedModel(d.Current().Config.Models, name) }, Version: buildinfo.Version(), Logger: d.log})
}

// tracedModel returns a model as its provider names it.
func tracedModel(models []config.Model, name string) (traces.Model, bool) {
	i := slices.IndexFunc(models, func(m config.Model) bool { return string(m.Name) == name })
	if i < 0 {
		return traces.Model{}, false
	}
	return traces.Model{Provider: models[i].Provider, Name: models[i].Model}, true
}
