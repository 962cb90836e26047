package why

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/config"
	"rouse/cmd/internal/plan"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/runs"
	"rouse/internal/text"
	"rouse/scheduler/schedule"
)

// maxWakeNote is the maximum length of a planned wake's instructions in a note, in characters.
const maxWakeNote = 80

// wakeNotes describes the planned wakes of the job and its agent.
func (e *explanation) wakeNotes(ctx context.Context) (out []string) {
	wakes, err := e.Ledger.Wakes.List(ctx)
	if err != nil {
		return []string{"the planned wakes are unknown: " + err.Error()}
	}
	for _, w := range wakes {
		if w.Job != e.name && (e.job == nil || w.Agent != e.job.Agent) {
			continue
		}
		by := ""
		if w.Run != 0 {
			by = fmt.Sprintf(", by run %d", w.Run)
		}
		out = append(out, fmt.Sprintf("a wake of the agent %s is planned for %s%s: %s", w.Agent, api.LocalTime(w.At, e.zone), by,
			text.Truncate(text.OneLine(w.Instructions), maxWakeNote)))
	}
	return out
}

// notes returns sentences about the job and the requested time.
func (e *explanation) notes(ctx context.Context) []string {
	var out []string
	addf := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	switch {
	case e.job != nil:
		addf("%s (agent %s): %s", e.name, e.job.Agent, strings.Join(e.setup.Triggers(e.job), "; "))
	case e.setup.Problem != nil:
		addf("the configuration cannot be used (see: rouse config check); this is what the record says of %s", e.name)
	default:
		addf("%s is not configured any more; this is what the record says of it", e.name)
	}

	switch {
	case e.job != nil && !config.On(e.job.Enabled):
		addf("it is disabled (enabled: false, see %s), so nothing comes due", e.job.At)
	case e.job != nil && !e.scheduled && len(e.setup.Plan.Runner.Jobs) > 0 && e.setup.Plan.Runner.Jobs[e.name].Name == "":
		addf("its agent %s is disabled, so nothing comes due", e.job.Agent)
	case e.notTakenUp != "":
		addf("%s", e.notTakenUp)
	}

	if i := slices.Index(e.setup.JobNames(), e.name); i >= 0 {
		for _, o := range e.Obstacles(ctx, e.setup, i) {
			addf("▲ blocked: %s", o)
		}
	}
	if e.watch.Problem != "" {
		addf("▲ %s", e.watch.Problem)
	}
	out = append(out, e.wakeNotes(ctx)...)
	out = append(out, e.collectNotes(ctx, e.name, e.now, e.zone)...)
	for i, w := range e.watch.Waits {
		if i == maxWaitNotes {
			addf("and %s more that wait: rouse why %s", text.Plural(len(e.watch.Waits)-i, "file"), e.watch.Path)
			break
		}
		addf("%s waits since %s: %s", w.Path, api.LocalTime(w.Since.Time, e.zone), w.Why)
	}

	for _, p := range e.pauses {
		if e.job != nil && p.Covers(e.name, e.job.Agent, e.now) {
			addf("%s", api.NewPause(p).Text(e.zone))
		}
	}
	out = append(append(out, e.followNotes(ctx)...), e.calendarNotes()...)
	for _, i := range e.failing {
		addf("%s", api.NewIncident(i).Text(e.zone))
	}
	if p, paused := e.Runner.Models.JobPaused(e.name, e.now); paused {
		addf("%s", newModelPause(p).Text(e.zone))
	}

	switch {
	case len(e.standing.Job.Schedules) == 0:
	case e.asked != nil:
		out = append(out, e.askedNotes()...)
	case !slices.ContainsFunc(e.lines, func(l line) bool { return l.runs }):
		if t := e.Scheduler.NextStart(e.name, e.now); !t.IsZero() {
			addf("by its schedule it starts next %s", api.LocalTime(t, e.zone))
		} else {
			addf("by its schedule it does not start again")
		}
	}
	return out
}

// maxWaitNotes is the maximum number of waiting files that the notes list.
const maxWaitNotes = 5

// askedNotes reports whether the requested time is a scheduled time, and which ones are near it.
func (e *explanation) askedNotes() (out []string) {
	at := e.asked.At
	if !slices.ContainsFunc(e.lines, func(l line) bool { return l.rank == rankOccurrence && l.Asked }) {
		// A long absence is recorded as one row for all its occurrences.
		i := slices.IndexFunc(e.rows, func(o runs.Occurrence) bool { return !o.Nominal.After(at) && !o.Through.Before(at) })
		if i >= 0 {
			return []string{fmt.Sprintf("%s lies in the stretch from %s to %s, for which one row stands", api.LocalTime(at, e.zone), api.LocalTime(e.rows[i].Nominal, e.zone), api.LocalTime(e.rows[i].Through, e.zone))}
		}
		out = e.nearby()
	}
	if at.Before(e.anchor) && e.notTakenUp == "" {
		out = append(out, fmt.Sprintf("this home knows the schedule as it is now only since %s", api.LocalTime(e.anchor, e.zone)))
	}
	return out
}

// nearby describes the scheduled times around a time at which the job was not due.
func (e *explanation) nearby() []string {
	var before, after time.Time
	var words, more []string
	for _, sch := range e.standing.Job.Schedules {
		words = append(words, sch.Describe())
		b, n := sch.LastAndNext(e.asked.At)
		before, after = latest(before, b), domain.Earlier(after, n)

		// A clock change moves a scheduled time by an hour or two.
		if note := sch.ClockChangeNote(b); note != "" && !b.IsZero() && e.asked.At.Sub(b) < 4*time.Hour {
			more = append(more, note)
		}
		// The time was parsed in the zone of the configuration. It may be a scheduled time in the
		// zone of the schedule.
		if w, err := schedule.ParseTime(e.written, e.now, sch.Zone(), false); err == nil && !w.At.Equal(e.asked.At) && sch.Matches(w.At) {
			more = append(more, fmt.Sprintf("%s of %s is one; ask for it by --at %s", e.written, schedule.ZoneName(sch.Zone()), w.At.In(sch.Zone()).Format(time.RFC3339)))
		}
		more = append(more, e.excludedNearby(sch)...)
	}

	last, next := "none comes before it", "and none comes after it"
	if !before.IsZero() {
		last = "the last before it is " + api.LocalTime(before, e.zone)
	}
	if !after.IsZero() {
		next = "the next " + api.LocalTime(after, e.zone)
	}
	return append([]string{fmt.Sprintf("%s is no instant of %s: %s, %s", api.LocalTime(e.asked.At, e.zone), strings.Join(words, " or "), last, next)}, more...)
}

// excludedNearby describes excluded scheduled times near the requested time.
func (e *explanation) excludedNearby(sch *schedule.Schedule) []string {
	candidates := sch.Last(e.asked.At.Add(-nearbySpan), e.asked.At, 1)
	if t, why := sch.NextWithExcluded(e.asked.At); why != "" && t.Sub(e.asked.At) < nearbySpan {
		candidates = append(candidates, t)
	}

	var out []string
	for _, t := range candidates {
		// NextWithExcluded returns the first scheduled time after its argument, so start just
		// before t.
		if _, why := sch.NextWithExcluded(t.Add(-time.Nanosecond)); why != "" {
			did := "left out"
			if dates, excluded := strings.CutPrefix(why, "exclude:"); excluded {
				did, why = "excluded", dates
			}
			out = append(out, fmt.Sprintf("%s would be one, and is %s (%s)", api.LocalTime(t, e.zone), did, strings.TrimSpace(why)))
		}
	}

	return out
}

// nearbySpan is the maximum distance of an excluded scheduled time from the requested time.
const nearbySpan = 36 * time.Hour

// asks reports whether the job uses a calendar.
func (e *explanation) asks(c api.Calendar) bool {
	return e.job != nil && (slices.Contains(e.job.Exclude, c.Name) || slices.Contains(e.job.Only, c.Name))
}

// calendarNotes describes the calendars that the job uses.
func (e *explanation) calendarNotes() (out []string) {
	for _, c := range plan.Calendars(e.setup.Config) {
		if !e.asks(c) {
			continue
		}
		note := c.Text(e.now)
		if c.Kind == "url" && c.FetchedAt.IsZero() {
			note += "; nothing is excluded by it, and what keeps to it (only) does not start"
		}
		if c.Problem != "" {
			note = "▲ " + note
		}
		out = append(out, note)
	}
	return out
}

// calendarChange returns a note if a calendar of the job has changed since t. The calendar may have
// excluded t before.
func (e *explanation) calendarChange(t time.Time) string {
	for _, c := range plan.Calendars(e.setup.Config) {
		if e.asks(c) && c.ChangedAt.After(t) {
			return fmt.Sprintf("; the calendar %s was changed %s, and may have left it out before", c.Name, api.LocalTime(c.ChangedAt.Time, e.zone))
		}
	}
	return ""
}

// followNotes describes the last runs of the jobs that this job follows, and lists the jobs that
// follow this one.
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

// followNote describes the last finished run of a job, and whether this job followed it.
func (e *explanation) followNote(ctx context.Context, job string, on []domain.Outcome) string {
	last, err := e.Ledger.Runs.List(ctx, runs.Filter{Job: job, State: domain.StateFinished, Limit: 1})
	if err != nil {
		return fmt.Sprintf("what became of %s cannot be read: %v", job, err)
	}
	if len(last) == 0 {
		return fmt.Sprintf("no run of %s, which it follows, has ended", job)
	}

	r := last[0]
	said := fmt.Sprintf("run %d of %s ended %s (%s)", r.ID, job, r.Outcome, api.LocalTime(r.FinishedAt, e.zone))
	follower, found, err := e.Ledger.Runs.ByKey(ctx, ledger.FollowerKey(r.ID, e.name))
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
