package daemon

import (
	"context"
	"slices"
	"strings"
	"time"

	"rouse/agentdb/ledger"
	"rouse/cmd/internal/api"
	"rouse/cmd/internal/config"
	"rouse/internal/domain"
	"rouse/scheduler"
	"rouse/scheduler/schedule"
	"rouse/scheduler/simulate"
)

// simulatedRuntime is how long a run is taken to be on.
const simulatedRuntime = time.Minute

// maxSimulated bounds the instants that a page shows: a job of every second has 604,800 in a week.
const maxSimulated = 1000

// Simulate implements web.Backend: what becomes of a job's instants from now on, with what the home holds, and until
// when it was simulated.
// The other jobs are played as well, since they take the same lanes.
func (d *Daemon) Simulate(ctx context.Context, job string, length time.Duration) (out []api.Occurrence, until time.Time, err error) {
	s, now := d.Current(), d.ledger.Now()
	if err := s.usable(); err != nil {
		return nil, until, err
	}

	o := simulate.Options{Jobs: s.plan.Jobs, Job: job, From: now, To: now.Add(length), Most: maxSimulated, Policy: s.plan.Policy, Runs: s.Config.Limits.Runs, RunsPerAgent: s.Config.Limits.RunsPerAgent,
		Blocked: Blocked(s.plan), Runtime: func(string, string) time.Duration { return simulatedRuntime }, States: map[string]ledger.JobState{}}
	if o.Pauses, err = d.ledger.Pauses(ctx, time.Time{}); err != nil {
		return nil, until, err
	}
	if o.Wakes, err = d.ledger.Wakes(ctx); err != nil {
		return nil, until, err
	}
	if o.Open, err = d.ledger.Unfinished(ctx); err != nil {
		return nil, until, err
	}

	known, err := d.ledger.Jobs(ctx)
	if err != nil {
		return nil, until, err
	}
	for _, j := range o.Jobs {
		for _, st := range known {
			if st.Name == j.Name && st.ScheduleHash == scheduler.Hash(j) {
				o.States[j.Name] = ledger.JobState{Anchor: st.Anchor, Watermark: st.Watermark}
			}
		}
	}

	all, err := simulate.Run(ctx, o, func(at time.Time) { until = at })
	if err != nil {
		return nil, until, err
	}

	NoteSimulated(all, s.Config, s.plan)
	o.To = until
	all = LeftOut(all, o, job)
	if len(all) > maxSimulated {
		until, all = all[maxSimulated].Nominal, all[:maxSimulated]
	}
	out = make([]api.Occurrence, len(all))
	for i, one := range all {
		out[i] = api.Occurrence{Job: one.Job, Agent: one.Agent, Source: one.Source, Nominal: api.At(one.Nominal), Actual: api.At(one.Actual), Decision: one.Decision, Reason: one.Reason, Outcome: one.Outcome}
	}
	return out, until, nil
}

// Blocked says which runs never start in a simulation, because nobody could do their work.
func Blocked(p *Plan) func(job, agent string) string {
	return func(job, agent string) string {
		j, a := p.Plan.Jobs[job], p.Plan.Agents[agent]
		if j.AsksModel() && j.Model == nil && a.Model == nil {
			return "stays queued: no_model"
		}
		return ""
	}
}

// NoteSimulated says what is special about a simulated run: that the clock changes, that it was put off
// by jitter, or that it depends on conditions.
func NoteSimulated(out []simulate.Occurrence, cfg *config.Config, p *Plan) {
	conditional, jobs := map[string]bool{}, map[string]scheduler.Job{}
	for _, j := range cfg.Jobs {
		conditional[string(j.Name)] = len(j.When) > 0
	}

	for _, j := range p.Jobs {
		jobs[j.Name] = j
	}

	for i := range out {
		o := &out[i]
		if o.Decision != domain.DecisionRun {
			continue
		}

		notes := []string{o.Reason}
		for _, sch := range jobs[o.Job].Schedules {
			if sch.Source() == o.Source {
				notes = append(notes, sch.ClockChangeNote(o.Nominal))
			}
		}

		if held := o.Actual.Sub(o.Nominal); held > 0 {
			notes = append(notes, schedule.HeldText(o.Source, held))
		}

		if conditional[o.Job] {
			notes = append(notes, "if its conditions hold (when:)")
		}

		o.Reason = strings.Join(slices.DeleteFunc(notes, func(s string) bool { return s == "" }), "; ")
	}
}
