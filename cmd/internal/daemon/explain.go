package daemon

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"rouse/agentdb/ledger"
	"rouse/cmd/internal/api"
	"rouse/cmd/internal/config"
	"rouse/internal/domain"
	"rouse/internal/text"
	"rouse/scheduler"
	"rouse/scheduler/schedule"
)

// explanation is one answer to the question why a job ran, or did not.
type explanation struct {
	d      *Daemon
	setup  *Setup
	name   string
	job    *config.Job // nil: not configured any more
	now    time.Time
	zone   *time.Location
	pauses []ledger.Pause

	text          string               // of the time that was asked for
	asked         *schedule.ParsedTime // nil: what there is up to now
	pivot         time.Time            // lines before it, and from it on, are counted apart
	before, after int

	standing  scheduler.JobStatus
	scheduled bool      // by a clock, and the scheduler knows it
	anchor    time.Time // since when this home knows the schedule as it is now
	unserved  string    // why no daemon has taken the schedule up yet
	rows      []ledger.Occurrence
	lines     []line
	more      bool // lie before the first line
}

// line is an Account with its rank among those of the same instant.
type line struct {
	api.Explanation
	rank int
	runs bool // is to come, and will run
}

// The ranks.
const (
	rankOccurrence = iota
	rankRun
	rankRetry
)

// Why implements web.Explainer.
func (d *Daemon) Why(ctx context.Context, job, at string, n int) (api.Why, error) {
	s := d.Current()
	a := &explanation{d: d, setup: s, name: job, job: s.job(job), now: time.Now(), zone: s.Config.Zone()}
	if err := a.parseAsked(at, n); err != nil {
		return api.Why{}, &api.Error{Message: err.Error(), Usage: true}
	}

	for _, step := range []func(context.Context) error{a.loadStanding, a.addRecorded, a.addUndecided, a.addUnrecorded, a.addOtherRuns, a.fillRuns} {
		if err := step(ctx); err != nil {
			return api.Why{}, err
		}
	}

	if a.job == nil && len(a.lines) == 0 {
		if err := s.usable(); err != nil {
			return api.Why{}, err
		}
		return api.Why{}, s.known(job, "")
	}

	out := api.Why{Job: job, Zone: a.zone.String(), Notes: a.notes(), Lines: []api.Explanation{}}
	for _, l := range a.lines {
		out.Lines = append(out.Lines, l.Explanation)
	}

	var err error
	out.Between, err = a.timeline(ctx)
	return out, err
}

// parseAsked reads which time is meant, and how many lines are wanted.
func (a *explanation) parseAsked(at string, n int) error {
	if at == "" {
		a.pivot, a.before, a.after = a.now.Add(time.Millisecond), n, upcomingShown
		return nil
	}

	w, err := schedule.ParseTime(at, a.now, a.zone, false)
	if err != nil {
		return err
	}

	a.text = strings.TrimSpace(at)
	a.asked, a.pivot, a.before, a.after = &w, w.At, n/2, n-n/2
	return nil
}

// upcomingShown is how many coming occurrences are shown at most to get to one that runs.
const upcomingShown = 3

// loadStanding asks where the job stands in time.
func (a *explanation) loadStanding(ctx context.Context) error {
	var err error
	if a.pauses, err = a.d.ledger.Pauses(ctx, time.Time{}); err != nil {
		return err
	}

	a.standing, a.scheduled = a.d.scheduler.JobStatus(a.name)
	st, known, err := a.d.ledger.JobState(ctx, a.name)
	a.anchor = st.Anchor
	switch {
	case err != nil || !a.scheduled:
		return err
	case !known:
		a.unserved = "no daemon has taken this job up yet; its schedule counts from then on: rouse serve"
	case st.ScheduleHash != scheduler.Hash(a.standing.Job):
		a.unserved = "its schedule was changed since a daemon last ran; the new one counts from the next start on: rouse serve"
	}

	if a.unserved != "" {
		a.anchor = a.standing.Watermark
	}

	return nil
}

func (a *explanation) add(rank int, acc api.Explanation) {
	acc.Job = a.name
	acc.Asked = a.asked != nil && !acc.Nominal.Before(a.asked.At) && acc.Nominal.Before(a.asked.At.Add(a.asked.Precision))
	a.lines = append(a.lines, line{Explanation: acc, rank: rank})
}

// addRecorded takes the rows of the ledger.
func (a *explanation) addRecorded(ctx context.Context) error {
	var err error
	a.rows, err = a.d.ledger.OccurrencesAround(ctx, a.name, a.pivot, max(a.before, 1), max(a.after, 1))
	for _, o := range a.rows {
		a.add(rankOccurrence, a.occurrence(o))
	}
	return err
}

// occurrence is a row, decided or not yet.
func (a *explanation) occurrence(o ledger.Occurrence) api.Explanation {
	acc := api.Explanation{Source: o.Source, Nominal: api.At(o.Nominal), Actual: api.At(o.Actual),
		Decision: o.Decision, Reason: o.Reason, Outcome: o.Outcome, Through: api.At(o.Through)}
	if o.Run != 0 {
		acc.Run = fmt.Sprint(o.Run)
	}

	if !o.Through.IsZero() {
		acc.Instants = o.Instants
		many := "more instants than were counted"
		if o.Instants > 0 {
			many = fmt.Sprintf("%d instants", o.Instants)
		}
		acc.Reason = fmt.Sprintf("one row for %s, up to %s: %s", many, api.LocalTime(o.Through, a.zone), o.Reason)
		return acc
	}

	var notes []string
	if o.Reason != "" {
		notes = append(notes, o.Reason)
	}

	if held := o.Actual.Sub(o.Nominal); held > 0 {
		notes = append(notes, fmt.Sprintf("jitter of %s", held))
	}

	for _, sch := range a.standing.Job.Schedules {
		if note := sch.ClockChangeNote(o.Nominal); note != "" && sch.Source() == o.Source && sch.Matches(o.Nominal) {
			notes = append(notes, note)
		}
	}

	acc.Reason = strings.Join(notes, "; ")
	return acc
}

// hasRow says whether a row speaks of an instant.
func (a *explanation) hasRow(t time.Time) bool {
	return slices.ContainsFunc(a.lines, func(l line) bool {
		return l.rank == rankOccurrence && (l.Nominal.UnixMilli() == t.UnixMilli() || (!l.Through.IsZero() && l.Nominal.Before(t) && !t.After(l.Through.Time)))
	})
}

// openRuns are the queued and running runs of the job, which decide about overlap.
func (a *explanation) openRuns(ctx context.Context) ([]ledger.Run, error) {
	queued, err := a.d.ledger.Runs(ctx, ledger.RunFilter{Job: a.name, State: domain.StateQueued})
	if err != nil {
		return nil, err
	}

	running, err := a.d.ledger.Runs(ctx, ledger.RunFilter{Job: a.name, State: domain.StateRunning})
	out := append(queued, running...)
	slices.SortFunc(out, func(x, y ledger.Run) int { return cmp.Compare(x.ID, y.ID) })
	return out, err
}

// addUndecided takes what has come and nobody has looked at, as it will be decided: by the
// same code, on the job's other runs as they are.
func (a *explanation) addUndecided(ctx context.Context) error {
	if len(a.standing.Due) == 0 {
		return nil
	}

	others, err := a.openRuns(ctx)
	if err != nil {
		return err
	}

	who := "a daemon started now"
	if a.d.watcher != nil {
		who = "the daemon"
	}

	for _, due := range a.standing.Due {
		if due.Decision == domain.DecisionRun {
			var replaced bool
			due.Decision, due.Reason, replaced = ledger.DecideDue(due, others, a.pauses)
			if replaced {
				others = nil
			}

			if due.Decision == domain.DecisionRun {
				others = append(others, ledger.Run{State: domain.StateQueued})
			}
		}
		if a.hasRow(due.Nominal) {
			continue
		}

		would := map[domain.Decision]string{domain.DecisionRun: "run it", domain.DecisionSkipped: "skip it", domain.DecisionMissed: "count it as missed"}[due.Decision]
		acc := a.occurrence(ledger.Occurrence{Source: due.Source, Nominal: due.Nominal, Actual: due.Actual, Through: due.Through, Instants: due.Instants,
			Reason: strings.Replace(due.Reason, "run 0 ", "the one before it ", 1)})
		acc.Reason = strings.TrimSuffix(fmt.Sprintf("not decided yet: %s would %s: %s", who, would, acc.Reason), ": ")
		a.add(rankOccurrence, acc)
	}

	return nil
}

// addUnrecorded takes the instants of the schedules that have no row, and says why.
func (a *explanation) addUnrecorded(context.Context) error {
	var future time.Time
	for _, sch := range a.standing.Job.Schedules {
		for _, t := range a.instants(sch) {
			if t.After(a.now) {
				if future.IsZero() || t.Before(future) {
					future = t
				}
				break
			}

			_, excluded := sch.NextWithExcluded(t.Add(-time.Nanosecond))
			if acc, ok := a.withoutRow(t, excluded); ok {
				acc.Source = sch.Source()
				a.add(rankOccurrence, acc)
			}
		}
	}

	a.addUpcoming(future)
	return nil
}

// instants are those of a schedule around the pivot that this answer may be about.
func (a *explanation) instants(sch *schedule.Schedule) []time.Time {
	out := sch.Last(a.anchor, a.pivot, max(a.before, 1))
	if a.asked == nil {
		return out
	}

	if a.pivot.Before(a.anchor) {
		out = nil
	}

	t := a.pivot.Add(-time.Nanosecond)
	for range max(a.after, 1) {
		if t, _ = sch.NextWithExcluded(t); t.IsZero() {
			break
		}
		out = append(out, t)
	}

	return out
}

// withoutRow accounts for an instant that has passed, if there is no row of it and that needs
// a word.
func (a *explanation) withoutRow(t time.Time, excluded string) (api.Explanation, bool) {
	acc := api.Explanation{Nominal: api.At(t), Actual: api.At(t)}
	asked := a.asked != nil && !t.Before(a.asked.At) && t.Before(a.asked.At.Add(a.asked.Precision))
	known := t.After(a.anchor)
	switch {
	case a.hasRow(t):
		return acc, false
	case excluded != "" && (known || asked):
		acc.Decision, acc.Reason = domain.DecisionSkipped, "exclude: "+excluded
		return acc, true
	case !known:
		acc.Reason = fmt.Sprintf("no row: this home knows the schedule as it is now only since %s", api.LocalTime(a.anchor, a.zone))
		if a.unserved != "" {
			acc.Reason = "no row: " + a.unserved
		}
		return acc, asked
	case t.After(a.standing.Watermark):
		return acc, false
	}

	acc.Reason = "no row is left of it"
	if keep := a.setup.Config.KeepOf(a.name); t.Before(a.now.Add(-keep)) {
		acc.Reason += fmt.Sprintf(": history older than %s is removed (keep)", config.Duration(keep))
	}

	between := len(a.rows) > 0 && t.After(a.rows[0].Nominal) && t.Before(a.rows[len(a.rows)-1].Nominal)
	return acc, asked || between
}

// addUpcoming takes occurrences that are still to come: those around the time that was asked for
// or, when it has passed, the next up to the first that runs.
func (a *explanation) addUpcoming(first time.Time) {
	const slots = 16 // of the agents that the job led to, which are not its own occurrences
	n, from, past := (max(a.before, 1)+max(a.after, 1))*max(len(a.standing.Job.Schedules), 1), a.now, !a.pivot.After(a.now.Add(time.Millisecond))
	if past {
		n = upcomingShown
	}

	if !first.IsZero() {
		from = first.Add(-time.Nanosecond)
	}

	for _, u := range a.d.scheduler.Next(a.name, n+slots, from) {
		if u.Source == scheduler.SourceWake || a.hasRow(u.Nominal) {
			continue
		}

		acc := api.Explanation{Source: u.Source, Nominal: api.At(u.Nominal), Actual: api.At(u.Actual), Reason: "not due yet"}
		if u.Decision != domain.DecisionRun {
			acc.Reason += ", and will be skipped"
		}

		if u.Reason != "" {
			acc.Reason += ": " + u.Reason
		}

		a.add(rankOccurrence, acc)
		a.lines[len(a.lines)-1].runs = u.Decision == domain.DecisionRun
		if n--; n == 0 || (past && u.Decision == domain.DecisionRun) {
			return
		}
	}
}

// addOtherRuns takes the runs by other triggers in between, and then keeps as many lines as were
// asked for.
func (a *explanation) addOtherRuns(ctx context.Context) error {
	middle := a.sort()
	var from, to time.Time
	if middle >= a.before && a.before > 0 {
		from = a.lines[middle-a.before].Nominal.Time
	}

	after := a.after
	switch {
	case a.asked == nil:
		after = 0
	case len(a.lines)-middle >= after && after > 0:
		to = a.lines[middle+after-1].Nominal.Time
	}

	runs, err := a.d.ledger.OtherRunsAround(ctx, a.name, a.pivot, a.before, after, from, to)
	if err != nil {
		return err
	}

	for _, r := range runs {
		acc := api.Explanation{Source: string(r.Trigger), Nominal: api.At(r.QueuedAt), Actual: api.At(r.StartedAt),
			Decision: domain.DecisionRun, Run: fmt.Sprint(r.ID), Reason: requestText(r)}
		if r.StartedAt.IsZero() {
			acc.Actual.Time = r.QueuedAt
		}
		a.add(rankRun, acc)
	}

	middle = a.sort()
	a.more = middle >= a.before
	a.lines = a.lines[max(0, middle-a.before):min(len(a.lines), middle+a.after)]
	return nil
}

// sort puts the lines in the order of time; it returns how many lie before the pivot.
func (a *explanation) sort() int {
	slices.SortStableFunc(a.lines, func(x, y line) int { return cmp.Or(x.Nominal.Compare(y.Nominal.Time), cmp.Compare(x.rank, y.rank)) })
	middle := slices.IndexFunc(a.lines, func(l line) bool { return !l.Nominal.Before(a.pivot) })
	if middle < 0 {
		return len(a.lines)
	}
	return middle
}

// requestText says what asked for a run, as far as its trigger does not.
func requestText(r ledger.Run) string {
	var d ledger.Detail
	if err := json.Unmarshal(r.Detail, &d); err != nil {
		return ""
	}

	switch {
	case d.File != nil:
		return "file " + d.File.Path
	case r.Trigger == domain.TriggerManual:
		return "started manually"
	}
	return ""
}

// fillRuns says what became of the runs, and gives a line to each further attempt.
func (a *explanation) fillRuns(ctx context.Context) error {
	for i := range a.lines {
		l := &a.lines[i]
		if l.Run == "" {
			continue
		}

		id, err := strconv.ParseInt(l.Run, 10, 64)
		if err != nil {
			return err
		}

		r, err := a.d.ledger.Run(ctx, id)
		switch {
		case errors.Is(err, ledger.ErrNotFound):
			l.say("the run itself is not kept any more")
			continue
		case err != nil:
			return err
		}

		l.State, l.WaitingFor, l.Outcome = r.State, r.WaitingFor, r.Outcome
		l.say(a.runText(r))
		if r.Attempt > 1 {
			if err := a.retries(ctx, r); err != nil {
				return err
			}
		}
	}

	a.sort()
	return nil
}

func (l *line) say(text string) {
	if text != "" && !strings.Contains(l.Reason, text) {
		l.Reason = strings.TrimPrefix(l.Reason+"; "+text, "; ")
	}
}

// runText says why a run did nothing, or does nothing yet, or did not do what it was to.
func (a *explanation) runText(r ledger.Run) string {
	switch r.Outcome {
	case domain.OutcomeSkipped, domain.OutcomeCancelled, domain.OutcomeInterrupted:
		return cmp.Or(r.Error, r.Summary)
	case domain.OutcomeError, domain.OutcomeTimeout, domain.OutcomeBudget:
		return text.Truncate(text.OneLine(r.Error), 160)
	}

	if r.State == domain.StateWaiting && r.WaitingFor == domain.WaitRetry {
		why := strings.TrimSuffix(": "+text.Truncate(text.OneLine(r.Error), 160), ": ")
		return fmt.Sprintf("attempt %d failed%s; the next is due %s", r.Attempt, why, api.LocalTime(r.NotBefore, a.zone))
	}

	if r.WaitsForPerson() {
		what := map[domain.Wait]string{domain.WaitInput: "your answer", domain.WaitApproval: "your leave"}[r.WaitingFor]
		return fmt.Sprintf("waits for %s until %s: rouse inbox", what, api.LocalTime(r.NotBefore, a.zone))
	}

	if r.State != domain.StateQueued {
		return ""
	}
	if p, ok := ledger.Paused(a.pauses, r.Job, r.Agent, a.now); ok && r.Trigger != domain.TriggerManual {
		return "waits for the end of the pause: " + p.String()
	}
	if why := a.d.runner.Blocked(r); why != "" {
		return "stays queued: " + why
	}

	if r.NotBefore.After(a.now) {
		return "starts " + api.LocalTime(r.NotBefore, a.zone)
	}

	return ""
}

// ended says how an attempt ended, by its state.
var ended = map[domain.AttemptState]string{domain.AttemptDone: "had ended", domain.AttemptFailed: "failed", domain.AttemptInterrupted: "was interrupted", domain.AttemptRunning: "is still on", domain.AttemptWaiting: "waited for its owner"}

// retries gives a line to each attempt after the first.
func (a *explanation) retries(ctx context.Context, r ledger.Run) error {
	attempts, err := a.d.ledger.Attempts(ctx, r.ID)
	if err != nil {
		return err
	}

	for i, at := range attempts {
		if i == 0 {
			continue
		}

		acc := api.Explanation{Source: sourceRetry, Nominal: api.At(at.StartedAt), Actual: api.At(at.StartedAt), Decision: domain.DecisionRun,
			Run: fmt.Sprint(r.ID), State: domain.State(at.State), Reason: fmt.Sprintf("attempt %d of run %d; attempt %d %s", at.Number, r.ID, attempts[i-1].Number, ended[attempts[i-1].State])}
		if why := attempts[i-1].Error; why != "" {
			acc.Reason += ": " + text.Truncate(text.OneLine(why), 160)
		}

		if i == len(attempts)-1 {
			acc.State, acc.WaitingFor, acc.Outcome = r.State, r.WaitingFor, r.Outcome
		}

		a.add(rankRetry, acc)
	}

	return nil
}
