package dashboard

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/a-h/templ"

	"rouse/cmd/internal/api"
	"rouse/internal/domain"
	"rouse/internal/ledger/incident"
	"rouse/internal/ledger/pause"
	"rouse/internal/ledger/runs"
)

// Limits of the data read for the page.
const (
	maxToday  = 500 // runs and occurrences of the day
	maxComing = 500
	latest    = 10
)

// slots is the number of sections of a timeline. Events in one section share a mark.
const slots = 96

// today is the first page: current and past runs, future runs, and waiting items.
type today struct {
	page
	Yesterday    time.Time // midnight in the configured time zone, like the next two
	Day, NextDay time.Time
	Jobs         []api.Job
	JobsFail     string
	Armed        int
	Next         *api.Occurrence
	Lanes        []lane
	Items        []api.Item
	Running      []api.Run
	Latest       []api.Run
	Ran, Failed  int
	FailedBefore int  // runs of yesterday that ended with an error
	Cut          bool // more runs exist than were read
	NotRun       []notRun
	Budgets      []api.BudgetRow
	Months       []api.BudgetRow // monthly budgets with a limit, and the daemon's
	Month        string          // such as 2026-11
	Pauses       []api.Pause
	Incidents    []api.Incident // open incidents
}

// lane is a job's row of the timeline.
type lane struct {
	api.Job
	Moments []moment // in order of time
	Last    *api.Run
}

// moment is a mark on a timeline.
type moment struct {
	mark
	At    time.Time
	Slot  int
	Count int
	Link  string
	Title string
	rank  int
}

// notRun is a reason why past instants of a job did not run.
type notRun struct {
	Job, Reason string
	Decision    domain.Decision
	Last        time.Time
	Count       int
}

func (s *site) todayRoutes(mux *http.ServeMux) {
	mux.Handle("GET /{$}", s.show(s.today))
	s.pauseRoutes(mux, "", pause.All)
}

func (s *site) today(r *http.Request, p page) (templ.Component, error) {
	ctx := r.Context()
	t := today{page: p.titled("Today", "Today")}
	y, m, d := p.Now.In(p.Zone).Date()
	t.Yesterday, t.Day, t.NextDay = time.Date(y, m, d-1, 0, 0, 0, 0, p.Zone), time.Date(y, m, d, 0, 0, 0, 0, p.Zone), time.Date(y, m, d+1, 0, 0, 0, 0, p.Zone)

	var err error
	// Show the history even if the configuration is not valid.
	if t.Jobs, err = s.control.Jobs(ctx); err != nil {
		t.JobsFail = s.answers.Failure(r, err).Message
	}

	// Compute the budget concurrently, because it takes long.
	var budget api.Budget
	var budgetFail error
	var beside sync.WaitGroup
	if t.JobsFail == "" {
		beside.Go(func() { budget, budgetFail = s.control.Budget(ctx) })
	}
	defer beside.Wait()

	floor, err := s.floor(ctx, 0)
	if err != nil {
		return nil, err
	}
	var ran, failedBefore []api.Run
	var instants []runs.Occurrence
	var errs [8]error
	t.Items, errs[0] = s.answers.Inbox.List(ctx)
	t.Running, errs[1] = s.answers.Runs.List(ctx, runs.Filter{State: domain.StateRunning, Limit: maxToday})
	t.Pauses, errs[2] = s.answers.Pauses.List(ctx)
	t.Incidents, errs[3] = s.answers.Incidents.List(ctx, incident.Filter{Limit: maxIncidents})
	ran, errs[4] = s.answers.Runs.List(ctx, runs.Filter{Since: t.Day, After: floor, Limit: maxToday, Brief: true})
	t.Latest, errs[5] = s.answers.Runs.List(ctx, runs.Filter{State: domain.StateFinished, Since: t.Day, After: floor, Limit: latest})
	// Failures of the night before may no longer be in the lists of a busy day.
	failedBefore, errs[6] = s.answers.Runs.List(ctx, runs.Filter{Outcome: domain.OutcomeError, Since: t.Yesterday, Until: t.Day, After: floor, Limit: maxToday, Brief: true})
	instants, errs[7] = s.ledger.Occurrences.NotRun(ctx, t.Day, p.Now, maxToday)
	if err := cmp.Or(errs[:]...); err != nil {
		return nil, err
	}
	t.Cut, t.FailedBefore, t.NotRun = len(ran) == maxToday, len(failedBefore), notRunOf(instants)
	t.count(ran)

	var coming []api.Occurrence
	if t.JobsFail == "" {
		if coming, err = s.coming(ctx, t.NextDay); err != nil {
			return nil, err
		}
		if beside.Wait(); budgetFail != nil {
			return nil, budgetFail
		}
		t.Budgets, t.Month = budget.Budgets, budget.Month
		for _, b := range budget.Months {
			if b.Scope == "daemon" && b.SpentUSD > 0 || b.LimitUSD != nil || b.LimitTokens != nil {
				t.Months = append(t.Months, b)
			}
		}
	}

	t.fill(ran, instants, coming)
	return todayPage(t), nil
}

// coming returns the occurrences before a time and the next run, at most maxComing. It starts with
// few occurrences because a long look ahead is slow.
func (s *site) coming(ctx context.Context, until time.Time) ([]api.Occurrence, error) {
	for n := 8; ; n *= 8 {
		out, err := s.why.Next(ctx, "", min(n, maxComing))
		if err != nil || n >= maxComing || len(out) < n || !out[len(out)-1].Actual.Before(until) && anyRuns(out) {
			return out, err
		}
	}
}

// anyRuns reports whether any occurrence will run.
func anyRuns(of []api.Occurrence) bool {
	return slices.ContainsFunc(of, func(o api.Occurrence) bool { return o.Decision == domain.DecisionRun })
}

// count counts the runs of today.
func (t *today) count(ran []api.Run) {
	t.Ran = len(ran)
	for _, r := range ran {
		if r.Outcome == domain.OutcomeError {
			t.Failed++
		}
	}
}

// notRunOf groups the instants that did not run by job and reason.
func notRunOf(instants []runs.Occurrence) []notRun {
	type why struct{ job, reason string }
	at := map[why]int{}
	var out []notRun
	for _, o := range instants {
		if o.Decision == domain.DecisionRun || o.Decision == "" {
			continue
		}

		key := why{o.Job, o.Reason}
		i, ok := at[key]
		if !ok {
			i = len(out)
			at[key] = i
			out = append(out, notRun{Job: o.Job, Reason: o.Reason, Decision: o.Decision, Last: o.Nominal})
		}
		out[i].Count += max(o.Instants, 1)
	}
	return out
}

// fill puts past runs, skipped instants and future runs onto the lanes of the jobs.
func (t *today) fill(ran []api.Run, instants []runs.Occurrence, coming []api.Occurrence) {
	byJob := map[string][]moment{}
	last := map[string]*api.Run{}
	for i, r := range ran {
		if last[r.Job] == nil {
			last[r.Job] = &ran[i]
		}
		title := fmt.Sprintf("%s run %s, %s", t.clock(began(r)), r.ID, runMark(r).Word)
		byJob[r.Job] = append(byJob[r.Job], moment{mark: runMark(r), At: began(r), Count: 1, Link: runLink(r.ID, r.Outcome), Title: title, rank: rank(r)})
	}

	for _, o := range instants {
		if o.Decision == domain.DecisionRun || o.Decision == "" {
			continue // represented by its run
		}
		word := string(o.Decision)
		byJob[o.Job] = append(byJob[o.Job], moment{mark: mark{"–", "grey", word}, At: o.Nominal, Count: max(o.Instants, 1), rank: 1,
			Link: jobPath(o.Job) + "#strip", Title: fmt.Sprintf("%s %s: %s", t.clock(o.Nominal), word, o.Reason)})
	}

	for i, o := range coming {
		if o.Decision == domain.DecisionRun && t.Next == nil {
			t.Next = &coming[i]
		}
		if o.Job == "" || !o.Actual.Before(t.NextDay) {
			continue
		}
		m := moment{mark: comingMark, At: o.Actual.Time, Count: 1, Link: jobPath(o.Job) + "#next", Title: t.clock(o.Actual.Time) + " coming"}
		if o.Decision != domain.DecisionRun {
			m.mark, m.Title = mark{"–", "grey", string(o.Decision)}, t.clock(o.Actual.Time)+" "+string(o.Decision)
		}
		if o.Reason != "" {
			m.Title += ": " + o.Reason
		}
		byJob[o.Job] = append(byJob[o.Job], m)
	}

	for _, j := range t.Jobs {
		if j.Enabled && !j.Paused {
			t.Armed++
		}
		t.Lanes = append(t.Lanes, lane{Job: j, Moments: t.placed(byJob[j.Name], j.Name), Last: last[j.Name]})
	}
}

// rank returns the priority of a run's mark. If several runs share a section, the first with the
// highest rank is shown.
func rank(r api.Run) int {
	switch {
	case r.Outcome.Failed():
		return 5
	case r.State == domain.StateWaiting:
		return 4
	case r.State != domain.StateFinished:
		return 3
	}
	return 2
}

// placed sets the sections of moments and merges moments in the same section.
func (t *today) placed(all []moment, job string) []moment {
	slices.SortStableFunc(all, func(a, b moment) int { return a.At.Compare(b.At) })
	length := t.NextDay.Sub(t.Day) / slots
	var out []moment
	for _, m := range all {
		m.Slot = min(max(int(m.At.Sub(t.Day)/length), 0), slots-1)
		n := len(out) - 1
		if n < 0 || out[n].Slot != m.Slot {
			out = append(out, m)
			continue
		}

		count := out[n].Count + m.Count
		if cmp.Compare(m.rank, out[n].rank) > 0 {
			m.Title = fmt.Sprintf("%s (and %d more by %s)", m.Title, count-1, t.clock(m.At))
			out[n] = m
		}
		out[n].Count = count
		out[n].Link = runsPath("job", job, "since", t.day(t.Day))
	}
	return out
}

// x returns the position of a moment on a lane, which is 1,000 units wide.
func (m moment) x() string { return strconv.Itoa(m.Slot * 985 / slots) }

// now returns the position of the current time on a lane.
func (t today) now() string {
	return strconv.Itoa(int(1000 * t.Now.Sub(t.Day) / t.NextDay.Sub(t.Day)))
}

// recent returns the last moments and the next one, which phones show instead of a timeline.
func (l lane) recent(now time.Time) []moment {
	const before, after = 3, 1
	next, _ := slices.BinarySearchFunc(l.Moments, now, func(m moment, at time.Time) int { return m.At.Compare(at) })
	return l.Moments[max(0, next-before):min(len(l.Moments), next+after)]
}

// forecastFrom explains how forecasts are computed.
const forecastFrom = "what is spent, and for each run that the clock still brings the median of the last 20 runs of its job; a job that has not run yet has none"

// share returns the used part of a limit, from 0 to 1.
func share(b api.BudgetRow) string {
	if b.LimitUSD == nil || *b.LimitUSD == 0 {
		return "0"
	}
	return strconv.FormatFloat(min((b.SpentUSD+b.ReservedUSD) / *b.LimitUSD, 1), 'f', 3, 64)
}

// budgetPath returns the address of the runs a budget covers, from the given day on.
func budgetPath(b api.BudgetRow, since string) string {
	if b.Scope == "daemon" {
		return runsPath("since", since)
	}
	return runsPath(b.Scope, b.Name, "since", since)
}

// budgetName returns the scope of a budget for a list.
func budgetName(b api.BudgetRow) string {
	if b.Scope == "daemon" {
		return "all"
	}
	return b.Scope + " " + b.Name
}

// pauseRoutes adds the routes that pause and resume everything, or the job or agent named in the
// path.
func (s *site) pauseRoutes(mux *http.ServeMux, path, scope string) {
	mux.Handle("POST "+path+"/pause", s.do(func(r *http.Request) (string, error) {
		return back(r), s.pause(r, scope)
	}))
	mux.Handle("POST "+path+"/resume", s.do(func(r *http.Request) (string, error) {
		_, err := s.answers.Pauses.End(r.Context(), scope, r.PathValue("name"))
		return back(r), err
	}))
}

// pause starts a pause with the values of the pause menu.
func (s *site) pause(r *http.Request, scope string) error {
	ask := api.PauseRequest{Scope: scope, Name: r.PathValue("name"), Reason: r.PostFormValue("reason")}
	switch length := r.PostFormValue("for"); length {
	case "forever":
	case "until":
		if ask.Until = s.typedTime(r, "until"); ask.Until == "" {
			return badRequest("say until when the pause is: a date and a time")
		}
	case "tomorrow":
		y, m, d := time.Now().In(s.control.Zone()).Date()
		ask.Until = time.Date(y, m, d+1, 0, 0, 0, 0, s.control.Zone()).Format("2006-01-02 15:04")
	default:
		ask.For = length
	}

	_, err := s.answers.Pauses.Begin(r.Context(), ask)
	return err
}

// typedTime returns a time entered in a form. Browsers put a T between the date and the time of
// day.
func (s *site) typedTime(r *http.Request, field string) string {
	typed := r.PostFormValue(field)
	if at, err := time.ParseInLocation("2006-01-02T15:04", typed, s.control.Zone()); err == nil {
		return at.Format("2006-01-02 15:04")
	}
	return typed
}

func hour(h int) string { return fmt.Sprintf("%02d", h) }

// words joins the triggers of a job.
func words(triggers []string) string {
	return line(strings.Join(triggers, "; "))
}

// firstJob is the example shown for an empty configuration.
const firstJob = `agents:
  - name: clerk

jobs:
  - name: hello
    agent: clerk
    schedule: "0 8 * * 1-5"
    playbook:
      - call: file_write
        with: { path: hello.txt, content: "good morning" }`
