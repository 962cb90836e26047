package why

import (
	"context"
	"slices"
	"time"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/config"
	"rouse/cmd/internal/plan"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/scheduler"
	"rouse/scheduler/schedule"
	"rouse/scheduler/simulate"
)

// simulatedRuntime is the assumed duration of a run.
const simulatedRuntime = time.Minute

// maxSimulated limits the occurrences on a page, because a job may run every second.
const maxSimulated = 1000

// Simulate returns the future occurrences of a job and the end of the simulated time. It stops
// early after maxSimulated occurrences. It also simulates other jobs, because they use the same
// lanes.
func (x *Explainer) Simulate(ctx context.Context, job string, length time.Duration) (out []api.Occurrence, until time.Time, err error) {
	s, now := x.Setup(), x.Ledger.Now()
	if err := s.Usable(); err != nil {
		return nil, until, err
	}

	o := simulate.Options{Jobs: s.Plan.Jobs, Job: job, From: now, To: now.Add(length), Most: maxSimulated, Policy: s.Plan.Policy, Runs: s.Config.Limits.Runs, RunsPerAgent: s.Config.Limits.RunsPerAgent,
		Blocked: Blocked(s.Plan), Runtime: func(string, string) time.Duration { return simulatedRuntime }, States: map[string]ledger.JobState{}}
	if o.Pauses, err = x.Ledger.Pauses.List(ctx, time.Time{}); err != nil {
		return nil, until, err
	}
	if o.Wakes, err = x.Ledger.Wakes.List(ctx); err != nil {
		return nil, until, err
	}
	if o.Open, err = x.Ledger.Runs.Unfinished(ctx); err != nil {
		return nil, until, err
	}

	known, err := x.Ledger.Jobs(ctx)
	if err != nil {
		return nil, until, err
	}
	hashes := map[string]string{}
	for _, j := range o.Jobs {
		hashes[j.Name] = scheduler.Hash(j)
	}
	for _, st := range known {
		if hash, ok := hashes[st.Name]; ok && hash == st.ScheduleHash {
			o.States[st.Name] = ledger.JobState{Anchor: st.Anchor, Watermark: st.Watermark}
		}
	}

	all, err := simulate.Run(ctx, o, func(at time.Time) { until = at })
	if err != nil {
		return nil, until, err
	}

	NoteSimulated(all, s.Config, s.Plan)
	o.To = until
	all = Excluded(all, o, job)
	if len(all) > maxSimulated {
		until, all = all[maxSimulated].Nominal, all[:maxSimulated]
	}
	out = make([]api.Occurrence, len(all))
	for i, one := range all {
		out[i] = api.Occurrence{Job: one.Job, Agent: one.Agent, Source: one.Source, Nominal: api.At(one.Nominal), Actual: api.At(one.Actual), Decision: one.Decision, Reason: one.Reason, Outcome: one.Outcome}
	}
	return out, until, nil
}

// Blocked returns a function for simulations. The function returns why runs of a job never start,
// or an empty string.
func Blocked(p *plan.Plan) func(job, agent string) string {
	return func(job, agent string) string {
		j, a := p.Runner.Jobs[job], p.Runner.Agents[agent]
		if j.AsksModel() && j.Model == nil && a.Model == nil {
			return "stays queued: no_model"
		}
		return ""
	}
}

// NoteSimulated adds clock changes, jitter and conditions to the reasons of simulated runs.
func NoteSimulated(out []simulate.Occurrence, cfg *config.Config, p *plan.Plan) {
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

		o.Reason = joinNotes(notes)
	}
}

// Excluded adds the times that dates and calendars exclude from the schedules of a job. If job is
// empty, it adds those of all jobs.
func Excluded(out []simulate.Occurrence, o simulate.Options, job string) []simulate.Occurrence {
	for _, j := range o.Jobs {
		if job != "" && j.Name != job {
			continue
		}

		anchor := o.From
		if st, ok := o.States[j.Name]; ok {
			anchor = st.Anchor
		}
		for _, sch := range j.Schedules {
			for _, gone := range sch.WithAnchor(anchor).LeftOut(o.From, o.To, maxExcluded) {
				out = append(out, simulate.Occurrence{Job: j.Name, Agent: j.Agent, Source: sch.Source(), Nominal: gone.At, Actual: gone.At, Decision: domain.DecisionSkipped, Reason: gone.Why})
			}
		}
	}

	slices.SortStableFunc(out, func(a, b simulate.Occurrence) int { return a.Nominal.Compare(b.Nominal) })
	return out
}

// maxExcluded is the maximum number of excluded times to add for each schedule.
const maxExcluded = 1000
