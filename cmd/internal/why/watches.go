package why

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/config"
	"rouse/internal/domain"
	"rouse/watcher"
)

// Handovers returns the next handovers of collecting watches. If job is empty, it returns those of
// all jobs.
func (x *Explainer) Handovers(ctx context.Context, job string, now time.Time) ([]api.Occurrence, error) {
	states, err := x.Ledger.Watches.States(ctx)
	if err != nil {
		return nil, err
	}
	known := x.Watches(ctx)
	var out []api.Occurrence
	for _, w := range x.Setup().Plan.Watches {
		if w.Collect.When == "" || job != "" && job != w.Job {
			continue
		}
		at := w.NextHandover(states[w.Job], now)
		o := api.Occurrence{Job: w.Job, Agent: w.Agent, Source: string(domain.TriggerWatch), Nominal: api.At(at), Actual: api.At(latest(at, now)), Decision: domain.DecisionRun, Reason: "files are collected " + w.Collect.When}
		if st, ok := known[w.Job]; ok {
			o.Reason += fmt.Sprintf(", %d so far", st.Waiting)
		}
		out = append(out, o)
	}
	return out, nil
}

// collectNotes describes the next handover of a job, and reports if the last one had no files.
func (x *Explainer) collectNotes(ctx context.Context, job string, now time.Time, zone *time.Location) []string {
	coming, err := x.Handovers(ctx, job, now)
	if err != nil || len(coming) == 0 {
		return nil
	}
	out := []string{fmt.Sprintf("%s; files that arrive before %s go to one run", coming[0].Reason, api.LocalTime(coming[0].Nominal.Time, zone))}
	if st, known, err := x.Ledger.Watches.State(ctx, job); err == nil && known && st.Run == 0 && st.Collected.After(st.Since) {
		out = append(out, fmt.Sprintf("at %s there were no files, so there was no run", api.LocalTime(st.Collected, zone)))
	}
	return out
}

func latest(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// Watches returns the state of each watch, by job. Without a daemon it is empty.
func (x *Explainer) Watches(ctx context.Context) map[string]api.Watch {
	out := map[string]api.Watch{}
	if x.Watcher == nil {
		return out
	}

	for _, st := range x.Watcher.Status(ctx) {
		out[st.Job] = NewWatch(st)
	}
	return out
}

// maxWaits is the maximum number of waiting files of a watch.
const maxWaits = 100

// NewWatch converts the state of a watch.
func NewWatch(st watcher.Status) api.Watch {
	w := api.Watch{Path: st.Path, Mode: st.Mode, State: string(st.State), Waiting: st.Waiting, Round: st.Round, Handover: api.At(st.Handover),
		Rescanned: api.At(st.LastScan), Degraded: st.Degraded, Problem: st.Problem}
	for _, wait := range st.Waits[:min(len(st.Waits), maxWaits)] {
		one := api.WatchWait{Path: wait.Path, Why: wait.Why, Since: api.At(wait.Since)}
		if wait.Run != 0 {
			one.Run = strconv.FormatInt(wait.Run, 10)
		}
		w.Waits = append(w.Waits, one)
	}
	return w
}

// WatchOf returns the watch of a job, or nil if it has none.
func WatchOf(j *config.Job, known map[string]api.Watch) *api.Watch {
	if j.Watch == nil {
		return nil
	}
	if w, ok := known[string(j.Name)]; ok {
		return &w
	}
	// Without a daemon, only the configuration is known.
	return &api.Watch{Path: string(j.Watch.Path), Mode: j.Watch.Mode}
}

// WatchProblem returns the problems of a watch, or an empty string.
func WatchProblem(w api.Watch) string {
	if w.Problem == "" || w.Degraded == "" {
		return w.Problem + w.Degraded
	}
	return w.Problem + "; " + w.Degraded
}
