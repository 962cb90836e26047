package reload

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	agentplan "rouse/agent/plan"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/config"
	"rouse/cmd/internal/plan"
)

// apply activates a setup. Parts that can fail go first, and are restored if one fails.
func (r *Reloader) apply(ctx context.Context, next *plan.Setup) error {
	old := r.Setup.Load()

	// Runs that started earlier may still print old secrets, so redact those too.
	next.Plan.Runner.Secrets = union(next.Plan.Runner.Secrets, old.Plan.Runner.Secrets)

	// Runs of old and new jobs can start until all parts have switched.
	r.Runner.Set(merged(old.Plan.Runner, next.Plan.Runner))
	err := r.Watcher.Set(ctx, r.Nodes.OwnWatches(next.Plan))
	if err == nil {
		if err = r.Nodes.SetSchedules(ctx, next.Plan); err != nil {
			err = errors.Join(err, r.Watcher.Set(ctx, r.Nodes.OwnWatches(old.Plan)))
		}
	}
	if err != nil {
		r.Runner.Set(old.Plan.Runner)
		return fmt.Errorf("the new configuration could not be put into force; it is tried again: %w", err)
	}

	r.Setup.Store(next)
	r.Nodes.SaveConfigHash(ctx, next.Config)
	r.Runner.Set(next.Plan.Runner)
	limits := next.Config.Limits
	r.Scheduler.SetLanes(limits.Runs)
	dispatcher := r.Dispatcher.Load()
	dispatcher.SetLanes(limits.Runs, limits.RunsPerAgent)
	r.Nodes.SetLanes(ctx, limits.Runs)
	dispatcher.SetDrain(time.Duration(limits.Drain))
	r.Notifier.SetChannels(next.Plan.Channels, plan.ChannelRules(next.Config, r.Session))
	if r.LogVar != nil {
		r.LogVar.Set(next.Config)
	}

	// The reason that kept runs in the queue may be gone, such as a missing model or a lower
	// limit.
	r.Runner.Models.ProbeLocal(ctx)
	dispatcher.Reconsider()
	return nil
}

// revokeSecrets takes removed secrets away from agents at once. Their values are still redacted.
func (r *Reloader) revokeSecrets(next *plan.Setup) {
	if next == nil || next.Config == nil || len(next.Config.Secrets.Unset) == 0 {
		return
	}

	gone, now := next.Config.Secrets.Unset, *r.Setup.Load()
	// Setups are immutable and shared with started runs, so change a copy.
	held := *now.Plan
	held.Runner.Agents = maps.Clone(held.Runner.Agents)
	for name, a := range held.Runner.Agents {
		a.Secrets = slices.Clone(a.Secrets)
		for i := range a.Secrets {
			if slices.Contains(gone, a.Secrets[i].Name) {
				a.Secrets[i].Value = ""
			}
		}
		held.Runner.Agents[name] = a
	}

	now.Plan = &held
	r.Setup.Store(&now)
	r.Runner.Set(held.Runner)
}

// merged returns the agents and jobs of both plans. The second plan wins.
func merged(old, next agentplan.Plan) agentplan.Plan {
	out := next
	out.Agents, out.Jobs = maps.Clone(old.Agents), maps.Clone(old.Jobs)
	maps.Copy(out.Agents, next.Agents)
	maps.Copy(out.Jobs, next.Jobs)
	return out
}

func union(a, b []string) []string {
	return slices.Compact(slices.Sorted(slices.Values(slices.Concat(a, b))))
}

// accept records and logs that another configuration is active.
func (r *Reloader) accept(ctx context.Context, old, next *plan.Setup, out api.Reload, took time.Duration) {
	r.mu.Lock()
	recovered := len(r.problems) > 0
	r.problems, r.wanted = nil, nil
	r.mu.Unlock()
	r.reported = map[string]int{} // report the problem again if it returns
	log := r.Logger
	for _, w := range next.Config.Warnings {
		if !slices.ContainsFunc(old.Config.Warnings, func(o config.Problem) bool { return o.Path == w.Path && o.Message == w.Message }) {
			log.Warn("the configuration", "file", w.File, "line", w.Line, "key", w.Path, "warning", w.Message)
		}
	}

	for _, what := range next.Restart {
		if !slices.Contains(old.Restart, what) {
			log.Warn("a setting needs a restart", "setting", what)
		}
	}

	message := "the configuration was read again"
	if recovered {
		message = "the configuration is good again"
	}

	log.Info(message, "changes", cmp.Or(out.Summary(), "none"), "took", took.Round(time.Millisecond))
	// A reload without changes is not recorded, unless it ends a problem.
	if text := out.Summary(); text != "" || recovered {
		r.record(ctx, "config.reloaded", map[string]any{"summary": text})
	}
}
