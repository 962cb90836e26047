package daemon

import (
	"context"
	"errors"
	"os"
	"slices"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/buildinfo"
	"rouse/cmd/internal/notify"
	"rouse/cmd/internal/plan"
)

// Status returns the state of the process, for rouse status.
func (d *Daemon) Status(ctx context.Context) (api.Status, error) {
	c, err := d.ledger.Counts(ctx)
	st := api.Status{PID: os.Getpid(), Version: buildinfo.Version(), Home: d.home.Dir, StartedAt: api.At(d.startedAt), Zone: d.Zone().String(), Ready: d.ready.Load(), Foreground: d.Reloader == nil,
		Queued: c.Queued, Running: c.Running, Waiting: c.Waiting}
	st.Dashboard, st.DashboardProblem = d.DashboardURL("/"), d.DashboardProblem()
	st.Problem = d.LedgerProblem()
	if beats := d.heartbeatState(); beats != nil {
		st.Heartbeat = *beats
	}
	st.Replica.Unusable = []string{}
	if is := d.replicaState(); is != nil {
		st.Replica = *is
	}
	if e, err := d.Nodes.Engine(ctx); err == nil {
		st.Engine = e
	}
	now := d.Current()
	if files := now.Config.Files; len(files) > 0 {
		st.Config = files[0]
	}

	st.ConfigAt, st.ConfigProblems, st.ConfigRestart = api.At(now.At), []api.Problem{}, list(now.Restart)
	// A command reads the configuration afresh, so it has no older one in force to report on.
	if d.Reloader != nil {
		st.ConfigProblems = append(st.ConfigProblems, d.Reloader.ProblemsOnDisk()...)
	}

	st.WatchProblems = []string{}
	for job, w := range d.Watches(ctx) {
		if w.Problem != "" {
			st.WatchProblems = append(st.WatchProblems, job+": "+w.Problem)
		}
	}
	slices.Sort(st.WatchProblems)

	st.Calendars = plan.Calendars(d.Current().Config)
	st.ModelPauses = d.ModelPauses(d.ledger.Now())

	return st, err
}

// canDeliver returns yes, no or unknown, depending on whether a channel can deliver now, and the reason.
func (d *Daemon) canDeliver(ctx context.Context, channel string) (can, why string) {
	switch err := d.notifier.CanDeliver(ctx, channel); {
	case err == nil:
		return "yes", ""
	case errors.Is(err, notify.ErrNotAsked):
		return "unknown", err.Error()
	default:
		return "no", err.Error()
	}
}

// list makes nil an empty list, which is [] and not null in JSON.
func list(names []string) []string {
	if names == nil {
		return []string{}
	}
	return names
}
