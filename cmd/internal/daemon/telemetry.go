package daemon

import (
	"context"
	"fmt"
	"slices"
	"time"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/buildinfo"
	"rouse/cmd/internal/config"
	"rouse/cmd/internal/doctor"
	"rouse/cmd/internal/heartbeat"
	"rouse/cmd/internal/metrics"
	"rouse/cmd/internal/plan"
	"rouse/cmd/internal/supervision"
	"rouse/cmd/internal/traces"
	"rouse/internal/ledger"
)

// newHeartbeat pings the address of the configuration in force.
func (d *Daemon) newHeartbeat(well *supervision.Liveness) *heartbeat.Heartbeat {
	return heartbeat.New(heartbeat.Options{URL: func() string { return d.Current().Config.HeartbeatURL }, Well: well.Ask, Logger: d.log})
}

// heartbeatState is how the pings are doing, for the status; nil where there are none, and none are wanted.
func (d *Daemon) heartbeatState() *api.Heartbeat {
	beats, cfg := d.heartbeat.Load(), d.Current().Config
	if beats == nil {
		return nil
	}
	if cfg.HeartbeatURL == "" {
		if lacks := plan.SecretObstacles(cfg, "heartbeat_url"); len(lacks) > 0 {
			return &api.Heartbeat{Problem: "no ping is sent: " + lacks[0].Text}
		}
		return nil
	}

	is := beats.State()
	return &api.Heartbeat{To: is.To, LastPing: api.At(is.LastPing), Problem: is.Problem}
}

// checkHeartbeat says whether the pings arrive.
func checkHeartbeat(is *api.Heartbeat, zone *time.Location) api.Check {
	c := api.Check{Name: "heartbeat", OK: is.Problem == "", Detail: "the first ping is on its way"}
	switch {
	case !is.LastPing.IsZero():
		c.Detail = fmt.Sprintf("%s was pinged last at %s", is.To, api.LocalTime(is.LastPing.Time, zone))
	case is.To == "" && is.Problem != "":
		c.Detail = "nobody is pinged"
	case is.Problem != "":
		c.Detail = is.To + " was not pinged yet"
	}
	if is.Problem != "" {
		c.Detail += "; " + is.Problem
		c.Remedy = "see the message; it is tried again each minute, and whoever watches the address is about to tell you"
	}
	return c
}

// maxCounted bounds the notices that are counted for the numbers.
const maxCounted = 10_000

func (d *Daemon) newMetrics() (*metrics.Metrics, error) {
	return metrics.New(metrics.Options{Ledger: d.ledger, Now: d.snapshot, Version: buildinfo.Version(), Logger: d.log})
}

// snapshot returns the current numbers that are not on record.
func (d *Daemon) snapshot(ctx context.Context) (out metrics.Snapshot, err error) {
	c, err := d.ledger.Counts(ctx)
	if err != nil {
		return out, err
	}
	items, err := d.ledger.Inbox(ctx)
	if err != nil {
		return out, err
	}
	notices, err := d.ledger.UndeliveredNotices(ctx, maxCounted)
	if err != nil {
		return out, err
	}
	blocked, err := d.ledger.BlockedRuns(ctx)
	if err != nil {
		return out, err
	}
	e, err := d.Nodes.Engine(ctx)
	if err != nil {
		return out, err
	}

	out = metrics.Snapshot{Blocked: blocked, Queued: c.Queued, Running: c.Running, Waiting: c.Waiting, Lanes: d.Current().Config.Limits.Runs, Inbox: len(items), Ready: d.ready.Load(),
		Replica: d.replicaState(), Nodes: e.Nodes, Watches: d.Watches(ctx)}
	for _, n := range notices {
		if n.State == ledger.NoticePending {
			out.Outbox++
		}
	}
	return out, nil
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

// checkTraces reports whether traces arrive.
func (d *Daemon) checkTraces() api.Check {
	if why := d.traces.Problem(); why != "" {
		return doctor.Failed("traces", "not sent: "+why, "see that a receiver of OTLP over HTTP listens at telemetry.otlp.endpoint and takes its headers; runs go on without it")
	}
	return doctor.Passed("traces", "sent to "+d.traces.To())
}
