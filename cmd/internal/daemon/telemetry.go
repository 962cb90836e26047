package daemon

import (
	"context"
	"slices"

	"rouse/cmd/internal/buildinfo"
	"rouse/cmd/internal/config"
	"rouse/cmd/internal/heartbeat"
	"rouse/cmd/internal/metrics"
	"rouse/cmd/internal/supervision"
	"rouse/cmd/internal/traces"
)

// newHeartbeat pings the address of the configuration in force.
func (d *Daemon) newHeartbeat(well *supervision.Liveness) *heartbeat.Heartbeat {
	return heartbeat.New(heartbeat.Options{URL: func() string { return d.Current().Config.HeartbeatURL }, Well: well.Ask, Logger: d.log})
}

func (d *Daemon) newMetrics() (*metrics.Metrics, error) {
	return metrics.New(metrics.Options{Ledger: d.ledger, Now: d.status.Snapshot, Version: buildinfo.Version(), Logger: d.log})
}

// newTraces are those that the configuration asks for, nil where it asks for none.
func (d *Daemon) newTraces(ctx context.Context) (*traces.Traces, error) {
	to := d.Current().Config.Telemetry.OTLP
	if to == nil {
		return nil, nil
	}
	return traces.New(ctx, traces.Options{Ledger: d.ledger, URL: to.TracesURL(), Headers: to.Headers, Model: d.tracedModel, Version: buildinfo.Version(), Logger: d.log})
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
