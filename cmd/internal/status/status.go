// Package status reports on a process: the output of rouse status, the current values of /metrics,
// and the checks of services for rouse doctor.
package status

import (
	"context"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"rouse/agent"
	"rouse/cmd/internal/access"
	"rouse/cmd/internal/api"
	"rouse/cmd/internal/buildinfo"
	"rouse/cmd/internal/cluster"
	"rouse/cmd/internal/doctor"
	"rouse/cmd/internal/heartbeat"
	"rouse/cmd/internal/metrics"
	"rouse/cmd/internal/plan"
	"rouse/cmd/internal/reload"
	"rouse/cmd/internal/replicate"
	"rouse/cmd/internal/traces"
	"rouse/cmd/internal/why"
	"rouse/internal/ledger"
)

// Reporter reports on one process.
type Reporter struct {
	Home      string
	StartedAt time.Time
	Serves    bool               // the process is a daemon
	Setup     func() *plan.Setup // returns the configuration in force
	Ledger    *ledger.Ledger
	Runner    *agent.Runner
	Explainer *why.Explainer
	Checker   *doctor.Checker
	Nodes     *cluster.Self
	Reloader  *reload.Reloader // nil in a command
	Door      *access.Door

	Replicator *replicate.Replicator // nil without continuous copies
	Traces     *traces.Traces        // nil if no traces are sent

	ready     atomic.Bool
	heartbeat atomic.Pointer[heartbeat.Heartbeat] // nil in a command and until the daemon serves
}

// SetReady records whether every trigger is ready.
func (r *Reporter) SetReady(ready bool) { r.ready.Store(ready) }

// SetHeartbeat sets the heartbeat to report on.
func (r *Reporter) SetHeartbeat(h *heartbeat.Heartbeat) { r.heartbeat.Store(h) }

// maxCounted is the maximum number of notices counted for the metrics.
const maxCounted = 10_000

// Status returns the state of the process for rouse status.
func (r *Reporter) Status(ctx context.Context) (api.Status, error) {
	c, err := r.Ledger.Runs.Counts(ctx)
	st := api.Status{PID: os.Getpid(), Version: buildinfo.Version(), Home: r.Home, StartedAt: api.At(r.StartedAt), Zone: r.Setup().Config.Zone().String(), Ready: r.ready.Load(), Foreground: !r.Serves,
		Queued: c.Queued, Running: c.Running, Waiting: c.Waiting}
	st.Dashboard, st.DashboardProblem = r.Door.URL("/"), r.Door.Problem()
	st.Problem = r.Checker.LedgerProblem()
	if beats := r.heartbeatState(); beats != nil {
		st.Heartbeat = *beats
	}
	st.Replica.Unusable = []string{}
	if is := r.replicaState(); is != nil {
		st.Replica = *is
	}
	if e, err := r.Nodes.Engine(ctx); err == nil {
		st.Engine = e
	}
	now := r.Setup()
	if files := now.Config.Files; len(files) > 0 {
		st.Config = files[0]
	}

	st.ConfigAt, st.ConfigProblems, st.ConfigRestart = api.At(now.At), []api.Problem{}, list(now.Restart)
	// A command reads the configuration at its start, so it has no older one to report.
	if r.Serves {
		st.ConfigProblems = append(st.ConfigProblems, r.Reloader.ProblemsOnDisk()...)
	}

	st.WatchProblems = []string{}
	for job, w := range r.Explainer.Watches(ctx) {
		if w.Problem != "" {
			st.WatchProblems = append(st.WatchProblems, job+": "+w.Problem)
		}
	}
	slices.Sort(st.WatchProblems)

	st.Calendars = plan.Calendars(r.Setup().Config)
	st.ModelPauses = r.Explainer.ModelPauses(r.Ledger.Now())

	return st, err
}

// heartbeatState returns the state of the pings, or nil if pings are not configured.
func (r *Reporter) heartbeatState() *api.Heartbeat {
	beats, cfg := r.heartbeat.Load(), r.Setup().Config
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

// replicaState returns the state of the continuous copies, or nil if they are off.
func (r *Reporter) replicaState() *api.Replica {
	if r.Replicator == nil {
		return nil
	}
	is := r.Replicator.State()
	return &api.Replica{To: is.To, LastSuccess: api.At(is.LastSuccess), BehindSeconds: is.Behind.Seconds(), Databases: is.Waiting, Bytes: is.Bytes, Problem: r.Runner.Plan.Redact(is.Problem), Unusable: list(is.Unusable)}
}

// Snapshot returns the current values for the metrics that are not recorded.
func (r *Reporter) Snapshot(ctx context.Context) (out metrics.Snapshot, err error) {
	c, err := r.Ledger.Runs.Counts(ctx)
	if err != nil {
		return out, err
	}
	items, err := r.Ledger.Inbox.List(ctx)
	if err != nil {
		return out, err
	}
	notices, err := r.Ledger.Outbox.Undelivered(ctx, maxCounted)
	if err != nil {
		return out, err
	}
	blocked, err := r.Ledger.Runs.Blocked(ctx)
	if err != nil {
		return out, err
	}
	e, err := r.Nodes.Engine(ctx)
	if err != nil {
		return out, err
	}

	out = metrics.Snapshot{Blocked: blocked, Queued: c.Queued, Running: c.Running, Waiting: c.Waiting, Lanes: r.Setup().Config.Limits.Runs, Inbox: len(items), Ready: r.ready.Load(),
		Replica: r.replicaState(), Nodes: e.Nodes, Watches: r.Explainer.Watches(ctx)}
	for _, n := range notices {
		if n.State == ledger.NoticePending {
			out.Outbox++
		}
	}
	return out, nil
}

// list returns an empty list for nil, because nil is null in JSON.
func list(names []string) []string {
	if names == nil {
		return []string{}
	}
	return names
}
