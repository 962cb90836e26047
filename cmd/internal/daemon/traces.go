package daemon

import (
	"context"
	"slices"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/config"
	"rouse/cmd/internal/traces"
)

// newTraces are those that the configuration asks for, nil where it asks for none.
func (d *Daemon) newTraces(ctx context.Context) (*traces.Traces, error) {
	to := d.Current().Config.Telemetry.OTLP
	if to == nil {
		return nil, nil
	}
	return traces.New(ctx, traces.Options{Ledger: d.ledger, URL: to.TracesURL(), Headers: to.Headers, Model: d.tracedModel, Version: Version(), Logger: d.log})
}

// tracedModel is what a model is to its provider, by the configuration in force.
func (d *Daemon) tracedModel(name string) (traces.Model, bool) {
	models := d.Current().Config.Models
	i := slices.IndexFunc(models, func(m config.Model) bool { return string(m.Name) == name })
	if i < 0 {
		return traces.Model{}, false
	}
	return traces.Model{Provider: models[i].Provider, Name: models[i].Model}, true
}

// checkTraces says whether traces arrive.
func (d *Daemon) checkTraces() api.Check {
	c := api.Check{Name: "traces", OK: true, Detail: "sent to " + d.traces.To()}
	if why := d.traces.Problem(); why != "" {
		c.OK, c.Detail = false, "not sent: "+why
		c.Remedy = "see that a receiver of OTLP over HTTP listens at telemetry.otlp.endpoint and takes its headers; runs go on without it"
	}
	return c
}
