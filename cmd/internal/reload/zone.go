package reload

import (
	"context"
	"fmt"
	"slices"
	"time"

	"rouse/cmd/internal/plan"
	"rouse/internal/text"
	"rouse/scheduler/schedule"
)

// FollowZone rebuilds the plan if the machine's time zone has changed. It does not read the files.
func (r *Reloader) FollowZone(ctx context.Context) {
	old := r.Setup.Load()
	zone, changes := schedule.MachineZone()
	if !changes || old.Config.Timezone != "" || zone == old.Config.Zone() {
		r.zone = zone
		return
	}
	if zone != r.zone {
		// Two checks must agree, because ln -sf removes the old link before it creates the new
		// one.
		r.zone = zone
		return
	}

	var err error
	next := *old
	next.Config = old.Config.InZone(zone)
	next.Plan, err = plan.New(next.Config, r.Logger)
	if err == nil {
		for name, a := range next.Plan.Runner.Agents {
			a.Secrets = old.Plan.Runner.Agents[name].Secrets // keep the current secrets, because some may have been revoked
			next.Plan.Runner.Agents[name] = a
		}
		err = r.apply(ctx, &next)
	}
	if err != nil {
		r.Logger.Warn("cannot apply the new time zone of the machine; trying again", "zone", zone.String(), "error", err)
		return
	}
	r.reportZone(ctx, old, &next)
}

// reportZone logs and records a change of the machine's time zone since the previous setup.
func (r *Reloader) reportZone(ctx context.Context, old, next *plan.Setup) {
	from, to, now := old.Config.Zone(), next.Config.Zone(), time.Now()
	if from == to || old.Config.Timezone != "" || next.Config.Timezone != "" {
		return
	}

	was := map[string][]*schedule.Schedule{}
	for _, j := range old.Plan.Jobs {
		was[j.Name] = j.Schedules
	}
	same := func(a, b *schedule.Schedule) bool { return a.Next(now).Equal(b.Next(now)) }
	var moved []string
	for _, j := range next.Plan.Jobs {
		if s, ok := was[j.Name]; ok && !slices.EqualFunc(s, j.Schedules, same) {
			moved = append(moved, j.Name)
		}
	}

	summary := fmt.Sprintf("from %s to %s", from, to)
	if len(moved) > 0 {
		summary += "; other times for " + text.List(moved, 10)
	}
	r.Logger.Warn("the time zone of the machine changed", "from", from.String(), "to", to.String(), "jobs", text.List(moved, 10))
	r.record(ctx, "zone.changed", map[string]any{"from": from.String(), "to": to.String(), "summary": summary})
}
