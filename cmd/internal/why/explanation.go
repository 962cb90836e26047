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

// explanation collects the answer to why a job did or did not run.
type explanation struct {
	*Explainer
	setup   *plan.Setup
	name    string
	job     *config.Job // nil if the job is no longer configured
	now     time.Time
	zone    *time.Location
	pauses  []pause.Pause
	failing []incident.Incident // open incidents
	watch   api.Watch           // current state; empty without a daemon

	written       string               // requested time as entered
	asked         *schedule.ParsedTime // nil means until now
	pivot         time.Time            // lines before and after it are counted separately
	before, after int

	standing   scheduler.JobStatus
	scheduled  bool      // the job has a schedule that the scheduler knows
	anchor     time.Time // when this home first recorded the current schedule
	notTakenUp string    // why no daemon follows the schedule yet; may be empty
	rows       []runs.Occurrence
	lines      []line
	more       bool // there are more lines before the first
}

// line is an explanation with its rank among lines of the same time.
type line struct {
	api.Explanation
	rank int
	runs bool // a future occurrence that will run
}

// Ranks of lines. An occurrence comes before its run, and a run before its retries.
const (
	rankOccurrence = iota
	rankRun
	rankRetry
)

// parseAsked sets the requested time and the number of lines.
func (e *explanation) parseAsked(at string, n int) error {
	if at == "" {
		// Add a millisecond, so that an occurrence at this time counts as past.
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

// upcomingShown is the maximum number of future occurrences to show up to the first that runs.
const upcomingShown = 3

// loadStanding loads the incidents and pauses, and the state of the job's schedule.
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
	if e.notTakenUp != "" { // the recorded anchor belongs to another schedule or does not exist
		e.anchor = e.standing.Watermark
	}
	return nil
}

// isAsked reports whether t is the requested time.
func (e *explanation) isAsked(t time.Time) bool {
	return e.asked != nil && !t.Before(e.asked.At) && t.Before(e.asked.At.Add(e.asked.Precision))
}

func (e *explanation) add(rank int, ex api.Explanation) {
	ex.Job, ex.Asked = e.name, e.isAsked(ex.Nominal.Time)
	e.lines = append(e.lines, line{Explanation: ex, rank: rank})
}

// addRecorded adds the occurrences that the ledger has recorded.
func (e *explanation) addRecorded(ctx context.Context) error {
	var err error
	e.rows, err = e.Ledger.Occurrences.Around(ctx, e.name, e.pivot, max(e.before, 1), max(e.after, 1))
	for _, o := range e.rows {
		e.add(rankOccurrence, e.occurrence(o))
	}
	return err
}

// occurrence returns the explanation of an occurrence, decided or not.
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

	// A job can have several schedules. Use only the one that made this occurrence.
	for _, sch := range e.standing.Job.Schedules {
		if sch.Source() == o.Source && sch.Matches(o.Nominal) {
			notes = append(notes, sch.ClockChangeNote(o.Nominal))
		}
	}
	ex.Reason = joinNotes(notes)
	return ex
}

// joinNotes joins all notes that are not empty.
func joinNotes(notes []string) string {
	return strings.Join(slices.DeleteFunc(notes, func(s string) bool { return s == "" }), "; ")
}

// hasRow reports whether a line covers the time t, alone or within a range.
func (e *explanation) hasRow(t time.Time) bool {
	// Rows have a resolution of milliseconds, but t has nanoseconds.
	return slices.ContainsFunc(e.lines, func(l line) bool {
		return l.rank == rankOccurrence && (l.Nominal.UnixMilli() == t.UnixMilli() || (!l.Through.IsZero() && l.Nominal.Before(t) && !t.After(l.Through.Time)))
	})
}

// addUndecided adds due occurrences that are not decided yet, with the expected decision.
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
			// Each decision affects the overlap of the next one, as if they were made in order.
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

// addUnrecorded adds scheduled times that are not recorded, with the reason.
func (e *explanation) addUnrecorded(context.Context) error {
	var future time.Time // earliest future scheduled time
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

// instants returns the scheduled times around the pivot that the answer may include.
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

// withoutRow explains a past scheduled time without a row. It returns false if it is not worth a
// line.
func (e *explanation) withoutRow(t time.Time, excluded string) (api.Explanation, bool) {
	ex := api.Explanation{Nominal: api.At(t), Actual: api.At(t)}
	asked := e.isAsked(t)
	// The schedule may have been different before the anchor, so explain only the requested time.
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
		return ex, false // not decided yet; addUndecided adds it
	}

	ex.Reason = "no row is left of it" + e.calendarChange(t)
	if keep := e.setup.Config.KeepOf(e.name); t.Before(e.now.Add(-keep)) {
		ex.Reason += fmt.Sprintf(": history older than %s is removed (keep)", config.Duration(keep))
	}

	between := len(e.rows) > 0 && t.After(e.rows[0].Nominal) && t.Before(e.rows[len(e.rows)-1].Nominal)
	return ex, asked || between
}

// addUpcoming adds future occurrences around the requested time, or up to the next one that runs.
func (e *explanation) addUpcoming(first time.Time) {
	const wakes = 16 // extra room for wakes, which are not occurrences of the job
	n, from, past := (max(e.before, 1)+max(e.after, 1))*max(len(e.standing.Job.Schedules), 1), e.now, !e.pivot.After(e.now.Add(time.Millisecond))
	if past {
		n = upcomingShown
	}
	if !first.IsZero() {
		// Next returns occurrences after a time, but the answer includes first.
		from = first.Add(-time.Nanosecond)
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

// addOtherRuns adds runs with other triggers, and cuts the lines to the requested number.
func (e *explanation) addOtherRuns(ctx context.Context) error {
	middle := e.sort()
	var from, to time.Time
	// Do not read runs outside of the lines to show.
	if middle >= e.before && e.before > 0 {
		from = e.lines[middle-e.before].Nominal.Time
	}

	after := e.after
	switch {
	case e.asked == nil:
		// Without a requested time, there are no runs after the pivot.
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

// wokenRuns returns runs of wakes around the pivot. The wakes were planned by the job, or by the
// owner for its agent.
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

// sort sorts the lines by time and returns the number of lines before the pivot.
func (e *explanation) sort() int {
	// The sort is stable: lines of the same time and rank keep the order of the record.
	slices.SortStableFunc(e.lines, func(x, y line) int { return cmp.Or(x.Nominal.Compare(y.Nominal.Time), cmp.Compare(x.rank, y.rank)) })
	middle, _ := slices.BinarySearchFunc(e.lines, e.pivot, func(l line, at time.Time) int { return l.Nominal.Compare(at) })
	return middle
}

// requestText returns what requested a run, or an empty string if the trigger is sufficient.
func requestText(r ledger.Run) string {
	var d ledger.TriggerDetail
	if err := json.Unmarshal(r.Detail, &d); err != nil {
		return "" // the trigger is shown in any case
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

// folderReason returns the changes for which a converging watch started a run.
func folderReason(d ledger.TriggerDetail) string {
	what := cmp.Or(d.Changes.Text(), "nothing is in it")
	if d.Round <= 1 {
		return "round 1: " + what
	}
	return fmt.Sprintf("round %d, because the folder was different again after the run before: %s", d.Round, what)
}
