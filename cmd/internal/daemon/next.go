package daemon

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
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

// sourceRetry is the source of an attempt after the first.
const sourceRetry = "retry"

// maxDelayed is the maximum number of delayed runs to read.
const maxDelayed = 1000

// Next implements web.Backend.
func (d *Daemon) Next(ctx context.Context, job string, n int) ([]api.Occurrence, error) {
	if err := d.Current().Usable(); err != nil {
		return nil, err
	}

	now := d.ledger.Now()
	out := []api.Occurrence{}
	for _, u := range d.scheduler.Next(job, n, now) {
		out = append(out, api.Occurrence{Job: u.Job, Agent: u.Agent, Source: u.Source, Nominal: api.At(u.Nominal), Actual: api.At(u.Actual),
			Decision: u.Decision, Reason: u.Reason})
	}

	delayed, err := d.ledger.Delayed(ctx, job, now, maxDelayed)
	if err != nil {
		return nil, err
	}

	pauses, err := d.ledger.Pauses(ctx, now)
	if err != nil {
		return nil, err
	}

	for _, r := range delayed {
		if r.State == domain.StateQueued { // else it has started: its retry or the end of its wait is not a start
			out = append(out, delayedRun(r, pauses))
		}
	}

	following, err := d.following(ctx, job, n)
	if err != nil {
		return nil, err
	}
	out = append(out, following...)

	handovers, err := d.handovers(ctx, job, now)
	if err != nil {
		return nil, err
	}
	out = append(out, handovers...)

	// Both lists hold up to n, so cut only once they are merged.
	slices.SortStableFunc(out, func(a, b api.Occurrence) int { return a.Actual.Compare(b.Actual.Time) })
	return out[:min(n, len(out))], nil
}

// delayedRun is a run that has been accepted and waits for its time.
func delayedRun(r ledger.Run, pauses []ledger.Pause) api.Occurrence {
	o := api.Occurrence{Job: r.Job, Agent: r.Agent, Source: string(r.Trigger), Nominal: api.At(r.ScheduledAt), Actual: api.At(r.NotBefore),
		Decision: domain.DecisionRun, Run: fmt.Sprint(r.ID)}
	if r.ScheduledAt.IsZero() {
		o.Nominal.Time = r.QueuedAt
	}

	// For a scheduled run the source (cron, interval) says more than its trigger.
	var detail ledger.Detail
	if json.Unmarshal(r.Detail, &detail) == nil && detail.Source != "" {
		o.Source = detail.Source
	}

	o.Reason = fmt.Sprintf("run %d, held back: %s", r.ID, schedule.HeldText(o.Source, r.NotBefore.Sub(o.Nominal.Time)))

	// A pause never holds back a run that was started manually.
	if p, ok := ledger.Paused(pauses, r.Job, r.Agent, r.NotBefore); ok && r.Trigger != domain.TriggerManual {
		o.Reason += "; waits for the end of the pause: " + p.String()
	}

	return o
}

// sourceAfter is the source of a run that follows one of another job.
const sourceAfter = string(domain.TriggerAfter)

// following lists the runs of a job that follow other jobs, at the start of the run before them.
func (d *Daemon) following(ctx context.Context, name string, n int) ([]api.Occurrence, error) {
	j := d.Current().Job(name)
	if j == nil || !config.On(j.Enabled) {
		return nil, nil
	}

	var out []api.Occurrence
	for _, f := range j.Follows {
		// That job may itself follow others; a circle is refused with the configuration.
		coming, err := d.Next(ctx, f.Job, n)
		if err != nil {
			return nil, err
		}
		for _, o := range coming {
			if o.Decision == domain.DecisionRun && o.Job == f.Job {
				reason := fmt.Sprintf("once the run of %s that begins then has ended (%s)", f.Job, plan.OutcomesText(f.On))
				out = append(out, api.Occurrence{Job: name, Agent: j.Agent, Source: sourceAfter, Nominal: o.Nominal, Actual: o.Actual, Decision: domain.DecisionRun, Reason: reason})
			}
		}
	}
	return out, nil
}

// followNotes say of each job that this one follows how its last run that ended was taken, and which jobs follow this one.
func (e *explanation) followNotes(ctx context.Context) []string {
	if e.job == nil {
		return nil
	}

	var out []string
	for _, f := range e.job.Follows {
		if note := e.followNote(ctx, f.Job, f.On); note != "" {
			out = append(out, note)
		}
	}
	for _, j := range e.setup.Config.Jobs {
		if on, ok := j.Followed()[e.name]; ok && config.On(j.Enabled) {
			out = append(out, fmt.Sprintf("a run of it that ends (%s) is followed by one of %s", plan.OutcomesText(on), j.Name))
		}
	}
	return out
}

// followNote is what became of the last run of a job that ended, for the job that follows it.
func (e *explanation) followNote(ctx context.Context, job string, on []domain.Outcome) string {
	last, err := e.d.ledger.Runs(ctx, ledger.RunFilter{Job: job, State: domain.StateFinished, Limit: 1})
	if err != nil {
		return fmt.Sprintf("what became of %s cannot be read: %v", job, err)
	}
	if len(last) == 0 {
		return fmt.Sprintf("no run of %s, which it follows, has ended", job)
	}

	r := last[0]
	said := fmt.Sprintf("run %d of %s ended %s (%s)", r.ID, job, r.Outcome, api.LocalTime(r.FinishedAt, e.zone))
	follower, found, err := e.d.ledger.RunByKey(ctx, ledger.FollowerKey(r.ID, e.name))
	why := cmp.Or(failureText(r.Error), failureText(r.Summary))
	switch {
	case err != nil:
		return fmt.Sprintf("%s; whether it was followed cannot be read: %v", said, err)
	case found:
		return fmt.Sprintf("%s, and was followed by run %d", said, follower.ID)
	case !slices.Contains(on, r.Outcome):
		return joinNotes([]string{fmt.Sprintf("%s, and is not followed: that is for %s", said, plan.OutcomesText(on)), why})
	}
	return said + ", and is not followed: it ended before this was in force, was only tried out, or what followed it is not kept any more"
}

// simulatedRuntime is how long a run is taken to be on.
const simulatedRuntime = time.Minute

// maxSimulated bounds the instants that a page shows: a job of every second has 604,800 in a week.
const maxSimulated = 1000

// Simulate implements web.Backend. It simulates the other jobs too, because they use the same lanes.
func (d *Daemon) Simulate(ctx context.Context, job string, length time.Duration) (out []api.Occurrence, until time.Time, err error) {
	s, now := d.Current(), d.ledger.Now()
	if err := s.Usable(); err != nil {
		return nil, until, err
	}

	o := simulate.Options{Jobs: s.Plan.Jobs, Job: job, From: now, To: now.Add(length), Most: maxSimulated, Policy: s.Plan.Policy, Runs: s.Config.Limits.Runs, RunsPerAgent: s.Config.Limits.RunsPerAgent,
		Blocked: Blocked(s.Plan), Runtime: func(string, string) time.Duration { return simulatedRuntime }, States: map[string]ledger.JobState{}}
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

// LeftOut adds the instants that dates and calendars exclude, of one job or of all jobs ("").
func LeftOut(out []simulate.Occurrence, o simulate.Options, job string) []simulate.Occurrence {
	for _, j := range o.Jobs {
		if job != "" && j.Name != job {
			continue
		}

		anchor := o.From
		if st, ok := o.States[j.Name]; ok {
			anchor = st.Anchor
		}
		for _, sch := range j.Schedules {
			for _, gone := range sch.WithAnchor(anchor).LeftOut(o.From, o.To, maxLeftOut) {
				out = append(out, simulate.Occurrence{Job: j.Name, Agent: j.Agent, Source: sch.Source(), Nominal: gone.At, Actual: gone.At, Decision: domain.DecisionSkipped, Reason: gone.Why})
			}
		}
	}

	slices.SortStableFunc(out, func(a, b simulate.Occurrence) int { return a.Nominal.Compare(b.Nominal) })
	return out
}

// maxLeftOut is how many such instants of one schedule are listed.
const maxLeftOut = 1000
