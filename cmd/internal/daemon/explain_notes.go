package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/config"
	"rouse/cmd/internal/web"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/text"
	"rouse/scheduler/schedule"
	"rouse/watcher"
)

// maxTimeline limits the events, of which a daemon that restarts in a loop makes many.
const maxTimeline = 500

// maxWakeNote is the maximum number of characters shown of a planned wake's instructions.
const maxWakeNote = 80

// wakeNotes describes the planned wakes of the job and its agent.
func (e *explanation) wakeNotes(ctx context.Context) (out []string) {
	wakes, err := e.d.ledger.Wakes(ctx)
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

// notes returns sentences about the job, and about the time that was asked for.
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
		for _, o := range e.d.obstaclesOf(ctx, e.setup, i) {
			addf("▲ blocked: %s", o)
		}
	}
	if e.watch.Problem != "" {
		addf("▲ %s", e.watch.Problem)
	}
	out = append(out, e.wakeNotes(ctx)...)
	out = append(out, e.d.collectNotes(ctx, e.name, e.now, e.zone)...)
	for i, w := range e.watch.Waits {
		if i == maxWaitNotes {
			addf("and %s more that wait: rouse why %s", text.Plural(len(e.watch.Waits)-i, "file"), e.watch.Path)
			break
		}
		addf("%s waits since %s: %s", w.Path, api.LocalTime(w.Since.Time, e.zone), w.Why)
	}

	for _, p := range e.pauses {
		if e.job != nil && p.Covers(e.name, e.job.Agent, e.now) {
			addf("%s", web.NewPause(p).Text(e.zone))
		}
	}
	out = append(append(out, e.followNotes(ctx)...), e.calendarNotes()...)
	for _, i := range e.failing {
		addf("%s", web.NewIncident(i).Text(e.zone))
	}
	if p, paused := e.d.runner.PausedModel(e.name, e.now); paused {
		addf("%s", newModelPause(p).Text(e.zone))
	}

	switch {
	case len(e.standing.Job.Schedules) == 0:
	case e.asked != nil:
		out = append(out, e.askedNotes()...)
	case !slices.ContainsFunc(e.lines, func(l line) bool { return l.runs }):
		if t := e.d.scheduler.NextStart(e.name, e.now); !t.IsZero() {
			addf("by its schedule it starts next %s", api.LocalTime(t, e.zone))
		} else {
			addf("by its schedule it does not start again")
		}
	}
	return out
}

// maxWaitNotes is how many files that wait are told of a job.
const maxWaitNotes = 5

// askedNotes reports whether the time that was asked for is an instant, and the instants near it.
func (e *explanation) askedNotes() (out []string) {
	at := e.asked.At
	if !slices.ContainsFunc(e.lines, func(l line) bool { return l.rank == rankOccurrence && l.Asked }) {
		// A long absence is one row for all its instants.
		i := slices.IndexFunc(e.rows, func(o ledger.Occurrence) bool { return !o.Nominal.After(at) && !o.Through.Before(at) })
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

// nearby describes the instants around a time at which nothing was due.
func (e *explanation) nearby() []string {
	var before, after time.Time
	var words, more []string
	for _, sch := range e.standing.Job.Schedules {
		words = append(words, sch.Describe())
		b, n := sch.LastAndNext(e.asked.At)
		before, after = latest(before, b), domain.Earlier(after, n)

		// A change of the clock moves an instant by an hour or two.
		if note := sch.ClockChangeNote(b); note != "" && !b.IsZero() && e.asked.At.Sub(b) < 4*time.Hour {
			more = append(more, note)
		}
		// The time was read in the zone of the configuration; in that of the schedule it may be an instant.
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

// excludedNearby names the instants next to the time that was asked for which an exclusion removed.
func (e *explanation) excludedNearby(sch *schedule.Schedule) []string {
	candidates := sch.Last(e.asked.At.Add(-nearbySpan), e.asked.At, 1)
	if t, why := sch.NextWithExcluded(e.asked.At); why != "" && t.Sub(e.asked.At) < nearbySpan {
		candidates = append(candidates, t)
	}

	var out []string
	for _, t := range candidates {
		// NextWithExcluded gives the first instant after a time, so ask from just before to get this one.
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

// nearbySpan is how far an excluded instant may lie from the time that was asked for to be mentioned.
const nearbySpan = 36 * time.Hour

// timeline lists the events besides the runs from the first line to the last.
func (e *explanation) timeline(ctx context.Context) ([]api.TimelineEntry, error) {
	from, to := e.anchor, e.now
	if e.asked != nil {
		from, to = e.asked.At.Add(-time.Hour), e.asked.At.Add(e.asked.Precision+time.Hour)
	}
	if len(e.lines) > 0 {
		if first := e.lines[0].Nominal.Time; e.asked != nil || e.more || first.Before(from) {
			from = first
		}
		if last := e.lines[len(e.lines)-1].Nominal.Time; e.asked != nil {
			to = last
		}
	}
	if to.After(e.now) {
		to = e.now
	}

	events, err := e.d.ledger.EventsBetween(ctx, "", from, to, maxTimeline, "daemon.started", "daemon.stopped", "clock.stepped", "zone.changed", "config.reloaded", "config.refused")
	if err != nil {
		return nil, err
	}
	blocked, err := e.d.ledger.EventsBetween(ctx, e.name, from, to, maxTimeline, "file.blocked", ledger.FileBack, watcher.WaitsEvent, webhookEvent)
	if err != nil {
		return nil, err
	}
	last, err := e.daemonBefore(ctx, from, events)
	if err != nil {
		return nil, err
	}

	out := e.pauseEntries(from, to)
	for _, event := range slices.Concat(events, blocked) {
		entry := e.timelineEntry(event)
		// Two starts in a row: an orderly stop would have been recorded between them.
		if event.Kind == "daemon.started" && last == event.Kind {
			entry.Text = "the one before it did not stop: it was killed, or the power went"
		}
		if entry.What == "daemon" {
			last = event.Kind
		}
		out = append(out, entry)
	}
	slices.SortStableFunc(out, func(x, y api.TimelineEntry) int { return x.At.Compare(y.At.Time) })
	return out, nil
}

// daemonBefore returns the last start or stop of a daemon before the shown events, or "".
func (e *explanation) daemonBefore(ctx context.Context, from time.Time, shown []ledger.Event) (string, error) {
	if len(shown) == maxTimeline {
		from = shown[0].At // there are more in the window than are shown
	}

	before, err := e.d.ledger.EventsBetween(ctx, "", time.Time{}, from.Add(-time.Millisecond), 1, "daemon.started", "daemon.stopped")
	if err != nil || len(before) == 0 {
		return "", err
	}
	return before[0].Kind, nil
}

func (e *explanation) timelineEntry(event ledger.Event) api.TimelineEntry {
	var data struct {
		Seconds float64 `json:"seconds"`
		Path    string  `json:"path"`
		Run     int64   `json:"run"`
		Summary string  `json:"summary"`
		Error   string  `json:"error"`
		Why     string  `json:"why"`
		More    int     `json:"more"`
	}

	_ = json.Unmarshal(event.Data, &data) // what cannot be read is left out
	what, did, _ := strings.Cut(event.Kind, ".")
	entry := api.TimelineEntry{At: api.At(event.At), What: what, Did: did, Text: data.Summary + text.Truncate(text.OneLine(data.Error), 200)}
	step := time.Duration(data.Seconds * float64(time.Second)).Round(time.Second)
	switch {
	case event.Kind == "clock.stepped" && step < 0:
		entry.Text = fmt.Sprintf("it was set back by %s", -step)
	case event.Kind == "clock.stepped":
		entry.Text = fmt.Sprintf("it was set forward by %s, or the machine slept", step)
	case event.Kind == webhookEvent, event.Kind == watcher.WaitsEvent:
		entry.Text = fmt.Sprintf("%s: %s", data.Path, text.Truncate(text.OneLine(data.Why), 200))
		if data.More > 0 {
			entry.Text += fmt.Sprintf(" (and %d more before it)", data.More)
		}
	case event.Kind == ledger.FileBack:
		entry.Text = fmt.Sprintf("%s: %s", data.Path, watcher.BackText(data.Run))
	case data.Path != "":
		entry.Text = fmt.Sprintf("%s: this content was processed before, by run %d", data.Path, data.Run)
	}

	return entry
}

// pauseEntries are the starts and ends of the pauses that cover the job.
func (e *explanation) pauseEntries(from, to time.Time) []api.TimelineEntry {
	out := []api.TimelineEntry{}
	add := func(at time.Time, did, text string) {
		if !at.IsZero() && !at.Before(from) && !at.After(to) {
			out = append(out, api.TimelineEntry{At: api.At(at), What: "pause", Did: did, Text: text})
		}
	}

	agent := ""
	if e.job != nil {
		agent = e.job.Agent
	}

	for _, p := range e.pauses {
		if !p.Covers(e.name, agent, p.Since) {
			continue
		}

		about := api.ScopeText(p.Scope, p.Name)
		add(p.Since, "begins", fmt.Sprintf("%s (by the %s)", web.NewPause(p).Text(e.zone), p.By))
		// A pause that another one replaced did not end for the job.
		replaced := slices.ContainsFunc(e.pauses, func(q ledger.Pause) bool {
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
