package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"rouse/agentdb/ledger"
	"rouse/cmd/internal/api"
	"rouse/cmd/internal/config"
	"rouse/cmd/internal/web"
	"rouse/internal/text"
	"rouse/scheduler/schedule"
)

// maxTimeline bounds what is told beside the occurrences, so that a daemon that was
// restarted in a loop does not hide them.
const maxTimeline = 500

// notes are sentences about the job, and about the time that was asked for.
func (a *explanation) notes() []string {
	var out []string
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	switch {
	case a.job != nil:
		say("%s (agent %s): %s", a.name, a.job.Agent, strings.Join(a.setup.triggers(a.job), "; "))
	case a.setup.problem != nil:
		say("the configuration cannot be used (see: rouse config check); this is what the record says of %s", a.name)
	default:
		say("%s is not configured any more; this is what the record says of it", a.name)
	}

	switch {
	case a.job != nil && !config.On(a.job.Enabled):
		say("it is disabled (enabled: false, see %s), so nothing comes due", a.job.At)
	case a.job != nil && !a.scheduled && len(a.setup.plan.Plan.Jobs) > 0 && !a.planned():
		say("its agent %s is disabled, so nothing comes due", a.job.Agent)
	case a.unserved != "":
		say("%s", a.unserved)
	}

	if a.job != nil {
		for _, p := range a.pauses {
			if p.Covers(a.name, a.job.Agent, a.now) {
				say("%s", web.NewPause(p).Text(a.zone))
			}
		}
	}

	switch {
	case len(a.standing.Job.Schedules) == 0:
	case a.asked != nil:
		out = append(out, a.askedNotes()...)
	case !slices.ContainsFunc(a.lines, func(l line) bool { return l.runs }):
		if t := a.d.scheduler.NextStart(a.name, a.now); !t.IsZero() {
			say("by its schedule it starts next %s", api.LocalTime(t, a.zone))
		} else {
			say("by its schedule it does not start again")
		}
	}

	return out
}

// planned says whether the runner knows the job.
func (a *explanation) planned() bool {
	_, ok := a.setup.plan.Plan.Jobs[a.name]
	return ok
}

// askedNotes say whether the time that was asked for is an instant, and which are near it.
func (a *explanation) askedNotes() []string {
	var out []string
	hit := slices.ContainsFunc(a.lines, func(l line) bool { return l.rank == rankOccurrence && l.Asked })
	covered := a.rows
	covered = slices.DeleteFunc(slices.Clone(covered), func(o ledger.Occurrence) bool { return o.Nominal.After(a.asked.At) || o.Through.Before(a.asked.At) })
	if len(covered) > 0 && !hit {
		return []string{fmt.Sprintf("%s lies in the stretch from %s to %s, for which one row stands", api.LocalTime(a.asked.At, a.zone), api.LocalTime(covered[0].Nominal, a.zone), api.LocalTime(covered[0].Through, a.zone))}
	}

	if !hit {
		out = append(out, a.nearby()...)
	}

	if a.asked.At.Before(a.anchor) && a.unserved == "" {
		out = append(out, fmt.Sprintf("this home knows the schedule as it is now only since %s", api.LocalTime(a.anchor, a.zone)))
	}

	return out
}

// nearby says what lies around a time at which nothing was due.
func (a *explanation) nearby() []string {
	var before, after time.Time
	var words, more []string
	for _, sch := range a.standing.Job.Schedules {
		words = append(words, sch.Describe())
		b, n := sch.LastAndNext(a.asked.At)
		if b.After(before) {
			before = b
		}

		if !n.IsZero() && (after.IsZero() || n.Before(after)) {
			after = n
		}

		if !b.IsZero() && a.asked.At.Sub(b) < 4*time.Hour {
			if note := sch.ClockChangeNote(b); note != "" {
				more = append(more, note)
			}
		}

		if w, err := schedule.ParseTime(a.text, a.now, sch.Zone(), false); err == nil && !w.At.Equal(a.asked.At) && sch.Matches(w.At) {
			more = append(more, fmt.Sprintf("%s of %s is one; ask for it by --at %s", a.text, schedule.ZoneName(sch.Zone()), w.At.In(sch.Zone()).Format(time.RFC3339)))
		}

		left := sch.Last(a.asked.At.Add(-nearbySpan), a.asked.At, 1)
		if t, why := sch.NextWithExcluded(a.asked.At); why != "" && t.Sub(a.asked.At) < nearbySpan {
			left = append(left, t)
		}

		for _, t := range left {
			if _, why := sch.NextWithExcluded(t.Add(-time.Nanosecond)); why != "" {
				more = append(more, fmt.Sprintf("%s would be one, and is excluded (%s)", api.LocalTime(t, a.zone), strings.TrimSpace(why)))
			}
		}
	}

	text := fmt.Sprintf("%s is no instant of %s", api.LocalTime(a.asked.At, a.zone), strings.Join(words, " or "))
	switch {
	case before.IsZero():
		text += ": none comes before it"
	default:
		text += ": the last before it is " + api.LocalTime(before, a.zone)
	}

	if after.IsZero() {
		text += ", and none comes after it"
	} else {
		text += ", the next " + api.LocalTime(after, a.zone)
	}

	return append([]string{text}, more...)
}

// nearbySpan is how far from the time that was asked for an excluded instant is worth a word.
const nearbySpan = 36 * time.Hour

// timeline tells what happened beside the runs from the first line to the last.
func (a *explanation) timeline(ctx context.Context) ([]api.TimelineEntry, error) {
	from, to := a.anchor, a.now
	if a.asked != nil {
		from, to = a.asked.At.Add(-time.Hour), a.asked.At.Add(a.asked.Precision+time.Hour)
	}

	if len(a.lines) > 0 {
		if first := a.lines[0].Nominal.Time; a.asked != nil || a.more || first.Before(from) {
			from = first
		}
		if last := a.lines[len(a.lines)-1].Nominal.Time; a.asked != nil {
			to = last
		}
	}

	if to.After(a.now) {
		to = a.now
	}

	out := a.pauseEntries(from, to)
	events, err := a.d.ledger.EventsBetween(ctx, "", from, to, maxTimeline, "daemon.started", "daemon.stopped", "clock.stepped", "config.reloaded", "config.refused")
	if err != nil {
		return nil, err
	}

	blocked, err := a.d.ledger.EventsBetween(ctx, a.name, from, to, maxTimeline, "file.blocked")
	if err != nil {
		return nil, err
	}

	was := ""
	for _, e := range events {
		h := a.timelineEntry(e)
		if e.Kind == "daemon.started" && was == e.Kind {
			h.Text = "the one before it did not stop: it was killed, or the power went"
		}

		if h.What == "daemon" {
			was = e.Kind
		}

		out = append(out, h)
	}

	for _, e := range blocked {
		out = append(out, a.timelineEntry(e))
	}

	slices.SortStableFunc(out, func(x, y api.TimelineEntry) int { return x.At.Compare(y.At.Time) })
	return out, nil
}

func (a *explanation) timelineEntry(e ledger.Event) api.TimelineEntry {
	var data struct {
		Seconds float64   `json:"seconds"`
		From    time.Time `json:"from"`
		Path    string    `json:"path"`
		Run     int64     `json:"run"`
		Summary string    `json:"summary"`
		Error   string    `json:"error"`
	}

	_ = json.Unmarshal(e.Data, &data) // what cannot be read is not told
	what, did, _ := strings.Cut(e.Kind, ".")
	h := api.TimelineEntry{At: api.At(e.At), What: what, Did: did, Text: data.Summary + text.Truncate(text.OneLine(data.Error), 200)}
	step := time.Duration(data.Seconds * float64(time.Second)).Round(time.Second)
	switch {
	case e.Kind == "clock.stepped" && step < 0:
		h.Text = fmt.Sprintf("it was set back by %s", -step)
	case e.Kind == "clock.stepped":
		h.Text = fmt.Sprintf("it was set forward by %s, or the machine slept", step)
	case data.Path != "":
		h.Text = fmt.Sprintf("%s: this content was processed before, by run %d", data.Path, data.Run)
	}

	return h
}

// pauseEntries are the beginnings and ends of pauses that are about the job.
func (a *explanation) pauseEntries(from, to time.Time) []api.TimelineEntry {
	out := []api.TimelineEntry{}
	add := func(at time.Time, did, text string) {
		if !at.IsZero() && !at.Before(from) && !at.After(to) {
			out = append(out, api.TimelineEntry{At: api.At(at), What: "pause", Did: did, Text: text})
		}
	}

	agent := ""
	if a.job != nil {
		agent = a.job.Agent
	}

	for _, p := range a.pauses {
		if !p.Covers(a.name, agent, p.Since) {
			continue
		}

		about := api.ScopeText(p.Scope, p.Name)
		add(p.Since, "begins", fmt.Sprintf("%s (by the %s)", web.NewPause(p).Text(a.zone), p.By))
		replaced := slices.ContainsFunc(a.pauses, func(q ledger.Pause) bool {
			return q.ID > p.ID && q.Scope == p.Scope && q.Name == p.Name && q.Since.Equal(p.EndedAt)
		})
		switch {
		case p.EndedAt.IsZero():
			add(p.Until, "ends", about+" goes on")
		case !replaced:
			add(p.EndedAt, "ends", about+" was resumed")
		}
	}

	return out
}
