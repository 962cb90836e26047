// Package status reports on a process: what rouse status shows, the current numbers of /metrics, and the services that rouse
// doctor checks.
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
	Setup     func() *plan.Setup // the configuration in force
	Ledger    *ledger.Ledger
	Runner    *agent.Runner
	Explainer *why.Explainer
	Checker   *doctor.Checker
	Nodes     *cluster.Self
	Reloader  *reload.Reloader // nil in a command
	Door      *access.Door

	Replicator *replicate.Replicator // nil if there are no continuous copies
	Traces     *traces.Traces        // nil if none are sent

	ready     atomic.Bool
	heartbeat atomic.Pointer[heartbeat.Heartbeat] // nil before the daemon serves, and in a command
}

// SetReady records whether every trigger is ready.
func (r *Reporter) SetReady(ready bool) { r.ready.Store(ready) }

// SetHeartbeat has the pings reported on.
func (r *Reporter) SetHeartbeat(h *heartbeat.Heartbeat) { r.heartbeat.Store(h) }

// maxCounted bounds the notices that are counted for the numbers.
const maxCounted = 10_000

// Status returns the state of the process, for rouse status.
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
	// A command reads the configuration afresh, so it has no older one in force to report on.
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

// heartbeatState is how the pings are doing, for the status; nil where there are none, and none are wanted.
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

// replicaState is how far the continuous copies are; nil where there are none.
func (r *Reporter) replicaState() *api.Replica {
	if r.Replicator == nil {
		return nil
	}
	is := r.Replicator.State()
	return &api.Replica{To: is.To, LastSuccess: api.At(is.LastSuccess), BehindSeconds: is.Behind.Seconds(), Databases: is.Waiting, Bytes: is.Bytes, Problem: r.Runner.Plan.Redact(is.Problem), Unusable: list(is.Unusable)}
}

// Snapshot returns the current numbers that are not on record.
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

// list makes nil an empty list, which is [] and not null in JSON.
func list(names []string) []string {
	if names == nil {
		return []string{}
	}
	return names
}
