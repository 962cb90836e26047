package why

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/config"
	"rouse/cmd/internal/plan"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/incident"
	"rouse/internal/ledger/pause"
	"rouse/internal/ledger/runs"
	"rouse/internal/text"
	"rouse/scheduler"
	"rouse/scheduler/schedule"
)

// explanation is one answer to the question why a job ran, or did not.
type explanation struct {
	*Explainer
	setup   *plan.Setup
	name    string
	job     *config.Job // nil: not configured any more
	now     time.Time
	zone    *time.Location
	pauses  []pause.Pause
	failing []incident.Incident // that are open
	watch   api.Watch           // as it is now; without a daemon nothing is known

	written       string               // the time that was asked for, as it was written
	asked         *schedule.ParsedTime // nil: up to now
	pivot         time.Time            // lines before it, and from it on, are counted separately
	before, after int

	standing   scheduler.JobStatus
	scheduled  bool      // the scheduler knows a clock that starts the job
	anchor     time.Time // since when this home knows the current schedule
	notTakenUp string    // why no daemon follows the schedule yet
	rows       []runs.Occurrence
	lines      []line
	more       bool // there are more before the first line
}

// line is an explanation with its rank among those of the same instant.
type line struct {
	api.Explanation
	rank int
	runs bool // an upcoming occurrence that will run
}

// The ranks: an occurrence comes before its run, and a run before its retries.
const (
	rankOccurrence = iota
	rankRun
	rankRetry
)

// parseAsked reads which time is meant, and how many lines are wanted.
func (e *explanation) parseAsked(at string, n int) error {
	if at == "" {
		// One millisecond on, so that an instant at this very moment counts as past.
		e.pivot, e.before, e.after = e.now.Add(time.Millisecond), n, upcomingShown
		return nil
	}

	w, err := schedule.ParseTime(at, e.now, e.zone, false)
	if err != nil {
		return err
	}

	e.written = strings.TrimSpace(at)
	e.asked, e.pivot, e.before, e.after = &w, w.At, n/2, n-n/2
	return nil
}

// upcomingShown is how many coming occurrences are shown at most to get to one that runs.
const upcomingShown = 3

// loadStanding loads how far the job's schedule has been dealt with, and the pauses.
func (e *explanation) loadStanding(ctx context.Context) error {
	var err error
	if e.failing, err = e.Ledger.Incidents.List(ctx, incident.Filter{Job: e.name}); err != nil {
		return err
	}
	if e.pauses, err = e.Ledger.Pauses.List(ctx, time.Time{}); err != nil {
		return err
	}
	st, known, err := e.Ledger.JobState(ctx, e.name)
	if err != nil {
		return err
	}

	e.watch, e.anchor = e.Watches(ctx)[e.name], st.Anchor
	e.standing, e.scheduled = e.Scheduler.JobStatus(e.name)
	switch {
	case !e.scheduled:
		return nil
	case !known:
		e.notTakenUp = "no daemon has taken this job up yet; its schedule counts from then on: rouse serve"
	case st.ScheduleHash != scheduler.Hash(e.standing.Job):
		e.notTakenUp = "its schedule was changed since a daemon last ran; the new one counts from the next start on: rouse serve"
	}
	if e.notTakenUp != "" { // the recorded anchor is that of another schedule, or of none
		e.anchor = e.standing.Watermark
	}
	return nil
}

// isAsked reports whether t is the time that was asked for.
func (e *explanation) isAsked(t time.Time) bool {
	return e.asked != nil && !t.Before(e.asked.At) && t.Before(e.asked.At.Add(e.asked.Precision))
}

func (e *explanation) add(rank int, ex api.Explanation) {
	ex.Job, ex.Asked = e.name, e.isAsked(ex.Nominal.Time)
	e.lines = append(e.lines, line{Explanation: ex, rank: rank})
}

// addRecorded adds the occurrences that the ledger has rows of.
func (e *explanation) addRecorded(ctx context.Context) error {
	var err error
	e.rows, err = e.Ledger.Occurrences.Around(ctx, e.name, e.pivot, max(e.before, 1), max(e.after, 1))
	for _, o := range e.rows {
		e.add(rankOccurrence, e.occurrence(o))
	}
	return err
}

// occurrence is a row, decided or not yet.
func (e *explanation) occurrence(o runs.Occurrence) api.Explanation {
	ex := api.Explanation{Source: o.Source, Nominal: api.At(o.Nominal), Actual: api.At(o.Actual),
		Decision: o.Decision, Reason: o.Reason, Outcome: o.Outcome, Through: api.At(o.Through)}
	if o.Run != 0 {
		ex.Run = fmt.Sprint(o.Run)
	}

	if !o.Through.IsZero() {
		ex.Instants = o.Instants
		many := "more instants than were counted"
		if o.Instants > 0 {
			many = fmt.Sprintf("%d instants", o.Instants)
		}
		ex.Reason = fmt.Sprintf("one row for %s, up to %s: %s", many, api.LocalTime(o.Through, e.zone), o.Reason)
		return ex
	}

	notes := []string{o.Reason}
	if delay := o.Actual.Sub(o.Nominal); delay > 0 {
		notes = append(notes, schedule.HeldText(o.Source, delay))
	}

	// A job can have several schedules; only the one that made this occurrence can say something about it.
	for _, sch := range e.standing.Job.Schedules {
		if sch.Source() == o.Source && sch.Matches(o.Nominal) {
			notes = append(notes, sch.ClockChangeNote(o.Nominal))
		}
	}
	ex.Reason = joinNotes(notes)
	return ex
}

// joinNotes joins the notes that are not empty.
func joinNotes(notes []string) string {
	return strings.Join(slices.DeleteFunc(notes, func(s string) bool { return s == "" }), "; ")
}

// hasRow reports whether a line stands for an instant, alone or within a range.
func (e *explanation) hasRow(t time.Time) bool {
	// Rows have milliseconds, instants nanoseconds.
	return slices.ContainsFunc(e.lines, func(l line) bool {
		return l.rank == rankOccurrence && (l.Nominal.UnixMilli() == t.UnixMilli() || (!l.Through.IsZero() && l.Nominal.Before(t) && !t.After(l.Through.Time)))
	})
}

// addUndecided adds due occurrences without a decision, with the decision to expect.
func (e *explanation) addUndecided(ctx context.Context) error {
	if len(e.standing.Due) == 0 {
		return nil
	}

	others, err := e.Ledger.Runs.Unfinished(ctx)
	if err != nil {
		return err
	}
	others = slices.DeleteFunc(others, func(r ledger.Run) bool { return r.Job != e.name })

	who := "a daemon started now"
	if e.Watcher != nil {
		who = "the daemon"
	}

	for _, due := range e.standing.Due {
		if due.Decision == domain.DecisionRun {
			var replaced bool
			due.Decision, due.Reason, replaced = ledger.DecideDue(due, others, e.pauses)
			// Each decision changes what the next one overlaps with, as if they were made one after another.
			if replaced {
				others = nil
			}

			if due.Decision == domain.DecisionRun {
				others = append(others, ledger.Run{State: domain.StateQueued})
			}
		}
		if e.hasRow(due.Nominal) {
			continue
		}

		would := map[domain.Decision]string{domain.DecisionRun: "run it", domain.DecisionSkipped: "skip it", domain.DecisionMissed: "count it as missed"}[due.Decision]
		// The run that an earlier decision would queue has no number yet.
		ex := e.occurrence(runs.Occurrence{Source: due.Source, Nominal: due.Nominal, Actual: due.Actual, Through: due.Through, Instants: due.Instants,
			Reason: strings.Replace(due.Reason, "run 0 ", "the one before it ", 1)})
		ex.Reason = strings.TrimSuffix(fmt.Sprintf("not decided yet: %s would %s: %s", who, would, ex.Reason), ": ")
		e.add(rankOccurrence, ex)
	}

	return nil
}

// addUnrecorded adds the instants of the schedules that have no row, with the reason.
func (e *explanation) addUnrecorded(context.Context) error {
	var future time.Time // the earliest coming instant
	for _, sch := range e.standing.Job.Schedules {
		for _, t := range e.instants(sch) {
			if t.After(e.now) { // addUpcoming adds it
				future = domain.Earlier(future, t)
				break
			}
			_, excluded := sch.NextWithExcluded(t.Add(-time.Nanosecond))
			if ex, ok := e.withoutRow(t, excluded); ok {
				ex.Source = sch.Source()
				e.add(rankOccurrence, ex)
			}
		}
	}
	e.addUpcoming(future)
	return nil
}

// instants returns the instants of a schedule around the pivot that the answer may include.
func (e *explanation) instants(sch *schedule.Schedule) []time.Time {
	out := sch.Last(e.anchor, e.pivot, max(e.before, 1))
	if e.asked == nil {
		return out
	}
	if e.pivot.Before(e.anchor) {
		out = nil
	}
	t := e.pivot.Add(-time.Nanosecond)
	for range max(e.after, 1) {
		if t, _ = sch.NextWithExcluded(t); t.IsZero() {
			break
		}
		out = append(out, t)
	}
	return out
}

// withoutRow explains a past instant that has no row; false if there is nothing to explain.
func (e *explanation) withoutRow(t time.Time, excluded string) (api.Explanation, bool) {
	ex := api.Explanation{Nominal: api.At(t), Actual: api.At(t)}
	asked := e.isAsked(t)
	// Before the anchor the schedule may have been another one, so only requested instants count.
	known := t.After(e.anchor)
	switch {
	case e.hasRow(t):
		return ex, false
	case excluded != "" && (known || asked):
		ex.Decision, ex.Reason = domain.DecisionSkipped, excluded
		return ex, true
	case !known:
		ex.Reason = fmt.Sprintf("no row: this home knows the schedule as it is now only since %s", api.LocalTime(e.anchor, e.zone))
		if e.notTakenUp != "" {
			ex.Reason = "no row: " + e.notTakenUp
		}
		return ex, asked
	case t.After(e.standing.Watermark):
		return ex, false // not decided yet: addUndecided has it
	}

	ex.Reason = "no row is left of it" + e.calendarChange(t)
	if keep := e.setup.Config.KeepOf(e.name); t.Before(e.now.Add(-keep)) {
		ex.Reason += fmt.Sprintf(": history older than %s is removed (keep)", config.Duration(keep))
	}

	between := len(e.rows) > 0 && t.After(e.rows[0].Nominal) && t.Before(e.rows[len(e.rows)-1].Nominal)
	return ex, asked || between
}

// addUpcoming adds coming occurrences: around the requested time, or up to the next one that runs.
func (e *explanation) addUpcoming(first time.Time) {
	const wakes = 16 // room for wakes that the job led to, which are not its own occurrences
	n, from, past := (max(e.before, 1)+max(e.after, 1))*max(len(e.standing.Job.Schedules), 1), e.now, !e.pivot.After(e.now.Add(time.Millisecond))
	if past {
		n = upcomingShown
	}
	if !first.IsZero() {
		from = first.Add(-time.Nanosecond) // Next lists what comes after a time, and first belongs to the answer
	}

	for _, u := range e.Scheduler.Next(e.name, n+wakes, from) {
		if u.Source == scheduler.SourceWake || e.hasRow(u.Nominal) {
			continue
		}
		runs, reason := u.Decision == domain.DecisionRun, "not due yet"
		if !runs {
			reason += ", and will be skipped"
		}
		if u.Reason != "" {
			reason += ": " + u.Reason
		}
		e.add(rankOccurrence, api.Explanation{Source: u.Source, Nominal: api.At(u.Nominal), Actual: api.At(u.Actual), Reason: reason})
		e.lines[len(e.lines)-1].runs = runs
		if n--; n == 0 || past && runs {
			return
		}
	}
}

// addOtherRuns adds the runs by other triggers, and cuts the lines to the requested number.
func (e *explanation) addOtherRuns(ctx context.Context) error {
	middle := e.sort()
	var from, to time.Time
	// Runs outside of the lines that will be shown need not be read.
	if middle >= e.before && e.before > 0 {
		from = e.lines[middle-e.before].Nominal.Time
	}

	after := e.after
	switch {
	case e.asked == nil:
		// Up to now there are no runs after the pivot.
		after = 0
	case len(e.lines)-middle >= after && after > 0:
		to = e.lines[middle+after-1].Nominal.Time
	}

	runs, err := e.Ledger.Runs.OthersAround(ctx, e.name, e.pivot, e.before, after, from, to)
	if err != nil {
		return err
	}

	woken, err := e.wokenRuns(ctx, after, from, to)
	if err != nil {
		return err
	}
	for _, r := range slices.Concat(runs, woken) {
		ex := api.Explanation{Source: string(r.Trigger), Nominal: api.At(r.QueuedAt), Actual: api.At(r.StartedAt),
			Decision: domain.DecisionRun, Run: fmt.Sprint(r.ID), Reason: requestText(r)}
		if r.StartedAt.IsZero() {
			ex.Actual.Time = r.QueuedAt
		}
		e.add(rankRun, ex)
	}

	middle = e.sort()
	e.more = middle >= e.before
	e.lines = e.lines[max(0, middle-e.before):min(len(e.lines), middle+e.after)]
	return nil
}

// wokenRuns returns runs of wakes around the pivot, of wakes planned by the job or by the owner for its agent.
func (e *explanation) wokenRuns(ctx context.Context, after int, from, to time.Time) ([]ledger.Run, error) {
	if after > 0 && !to.IsZero() {
		to = to.Add(time.Millisecond) // include the end of the window
	} else if after == 0 {
		to = e.pivot
	}
	f := runs.Filter{Woken: true, Job: e.name, Since: from, Until: to, Limit: maxTimeline}
	if e.job != nil {
		f.Job, f.Agent = "", e.job.Agent
	}
	runs, err := e.Ledger.Runs.List(ctx, f)
	return slices.DeleteFunc(runs, func(r ledger.Run) bool {
		var d ledger.TriggerDetail
		return json.Unmarshal(r.Detail, &d) != nil || d.Wake == nil || d.Wake.Job != e.name && d.Wake.Job != ""
	}), err
}

// sort sorts the lines by time, and returns how many lie before the pivot.
func (e *explanation) sort() int {
	// Stable: lines of the same instant and rank stay in the order of the record.
	slices.SortStableFunc(e.lines, func(x, y line) int { return cmp.Or(x.Nominal.Compare(y.Nominal.Time), cmp.Compare(x.rank, y.rank)) })
	middle, _ := slices.BinarySearchFunc(e.lines, e.pivot, func(l line, at time.Time) int { return l.Nominal.Compare(at) })
	return middle
}

// requestText says what asked for a run, where its trigger does not say enough.
func requestText(r ledger.Run) string {
	var d ledger.TriggerDetail
	if err := json.Unmarshal(r.Detail, &d); err != nil {
		return "" // the trigger, which is shown as well, has to do
	}

	switch {
	case d.File != nil:
		return "file " + d.File.Path
	case d.Folder != "" && d.Changes != nil:
		return folderReason(d)
	case d.After != nil:
		return fmt.Sprintf("after run %d of %s, which ended %s", d.After.Run, d.After.Job, d.After.Outcome)
	case d.Wake != nil:
		by := "the " + d.Wake.ScheduledBy
		if d.Wake.AskedBy != 0 {
			by = fmt.Sprintf("run %d", d.Wake.AskedBy)
		}
		return fmt.Sprintf("a wake of the agent %s, planned by %s: %s", r.Agent, by, text.Truncate(text.OneLine(d.Wake.Instructions), maxWakeNote))
	case r.Trigger == domain.TriggerManual:
		return "started manually"
	}
	return ""
}

// folderReason says what a run of a folder that converges was told of.
func folderReason(d ledger.TriggerDetail) string {
	what := cmp.Or(d.Changes.Text(), "nothing is in it")
	if d.Round <= 1 {
		return "round 1: " + what
	}
	return fmt.Sprintf("round %d, because the folder was different again after the run before: %s", d.Round, what)
}
