package daemon

import (
	"context"
	"slices"
	"time"

	"rouse/agentdb/ledger"
	"rouse/cmd/internal/metrics"
)

// maxCounted bounds the notices that are counted for the numbers.
const maxCounted = 10_000

func (d *Daemon) newMetrics() (*metrics.Metrics, error) {
	return metrics.New(metrics.Options{Ledger: d.ledger, Now: d.snapshot, Version: Version(), Logger: d.log})
}

// snapshot is what is so now, for the numbers.
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

	out = metrics.Snapshot{Blocked: blocked, Queued: c.Queued, Running: c.Running, Waiting: c.Waiting, Lanes: d.Current().Config.Limits.Runs, Inbox: len(items), Ready: d.ready.Load()}
	for _, n := range notices {
		if n.State == ledger.NoticePending {
			out.Outbox++
		}
	}

	if d.replicator != nil {
		is := d.replicator.State()
		out.Replica = &metrics.Replica{Behind: is.Behind, LastSuccess: is.LastSuccess, Works: is.Problem == ""}
	}
	e, err := d.Engine(ctx)
	if err != nil {
		return out, err
	}
	for _, n := range e.Nodes {
		// Of a name there may be one that is gone and one that is there.
		if i := slices.IndexFunc(out.Nodes, func(o metrics.Node) bool { return o.Name == n.Name }); i >= 0 {
			out.Nodes[i].Up, out.Nodes[i].Leads = out.Nodes[i].Up || n.Alive, out.Nodes[i].Leads || n.Leads
			continue
		}
		out.Nodes = append(out.Nodes, metrics.Node{Name: n.Name, Up: n.Alive, Leads: n.Leads})
	}

	for job, w := range d.watches(ctx) {
		one := metrics.Watch{Job: job, Waiting: w.Waiting, Works: w.Problem == ""}
		if !w.Rescanned.IsZero() {
			one.Lag = time.Since(w.Rescanned.Time)
		}
		out.Watches = append(out.Watches, one)
	}
	return out, nil
}
