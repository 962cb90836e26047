package dashboard

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/a-h/templ"

	"rouse/internal/domain"
	"rouse/internal/ledger/runs"
	"rouse/internal/text"
)

const (
	runsOnPage = 50
	// lookedAt is the maximum number of runs searched per page. It bounds the time of a search for
	// rare runs. The page says where the search stopped and continues from there.
	lookedAt = 20_000
)

// floor returns the lowest ID to search for a page that starts below the given ID. 0 means the
// newest run.
func (s *site) floor(ctx context.Context, before int64) (int64, error) {
	if before == 0 {
		newest, err := s.ledger.NewestRun(ctx)
		if err != nil {
			return 0, err
		}
		before = newest + 1
	}
	return max(0, before-lookedAt-1), nil
}

// runsFilter holds the filter of a list as entered.
type runsFilter struct{ Job, Agent, Outcome, State, Trigger, Since, Until, Text, Before string }

func (s *site) runsRoutes(mux *http.ServeMux) { mux.Handle("GET /runs", s.show(s.runs)) }

func (s *site) runs(r *http.Request, p page) (templ.Component, error) {
	q := r.URL.Query()
	f := runsFilter{Job: q.Get("job"), Agent: q.Get("agent"), Outcome: q.Get("outcome"), State: q.Get("state"), Trigger: q.Get("trigger"),
		Since: q.Get("since"), Until: q.Get("until"), Text: strings.TrimSpace(q.Get("q")), Before: q.Get("before")}
	of, err := f.parse(p.Zone)
	if err != nil {
		return nil, err
	}
	if of.After, err = s.floor(r.Context(), of.Before); err != nil {
		return nil, err
	}

	found, err := s.answers.Runs.List(r.Context(), of)
	if err != nil {
		return nil, err
	}

	// The next page starts below the last row, or where the search of this page stopped.
	older := ""
	switch {
	case len(found) == runsOnPage:
		older = found[len(found)-1].ID
	case of.After > 0:
		older = strconv.FormatInt(of.After+1, 10)
	}
	return runsPage(p.titled("Runs", "Runs"), f, found, older, s.control.AgentNames()), nil
}

// parse parses the filter. Dates are in the given time zone.
func (f runsFilter) parse(zone *time.Location) (runs.Filter, error) {
	out := runs.Filter{Job: f.Job, Agent: f.Agent, Outcome: domain.Outcome(f.Outcome), State: domain.State(f.State), Trigger: domain.Trigger(f.Trigger), Text: f.Text, Limit: runsOnPage}
	if f.Before != "" {
		id, err := strconv.ParseInt(f.Before, 10, 64)
		if err != nil || id < 1 {
			return out, badRequest("before is the number of a run, and %q is none", f.Before)
		}
		out.Before = id
	}

	var err error
	if out.Since, err = dateOf(f.Since, zone); err != nil {
		return out, err
	}
	if out.Until, err = dateOf(f.Until, zone); err == nil && !out.Until.IsZero() {
		out.Until = out.Until.AddDate(0, 0, 1) // include that day
	}
	return out, err
}

func dateOf(written string, zone *time.Location) (time.Time, error) {
	if written == "" {
		return time.Time{}, nil
	}
	t, err := time.ParseInLocation(time.DateOnly, written, zone)
	if err != nil {
		return t, badRequest("%q is no date; write 2026-11-23", written)
	}
	return t, nil
}

// olderPath returns the address of the next page of the list.
func (f runsFilter) olderPath(before string) string {
	return runsPath("job", f.Job, "agent", f.Agent, "outcome", f.Outcome, "state", f.State, "trigger", f.Trigger, "since", f.Since, "until", f.Until, "q", f.Text, "before", before)
}

// filtered reports whether any filter is set.
func (f runsFilter) filtered() bool { return f != runsFilter{} }

// Choices of the filters.
var (
	outcomes = text.Strings(domain.Outcomes())
	states   = text.Strings(domain.States())
	triggers = text.Strings(domain.Triggers())
)

// withChosen returns the choices including the selected one, which may come from another version.
func withChosen(all []string, chosen string) []string {
	if chosen == "" || slices.Contains(all, chosen) {
		return all
	}
	return append([]string{chosen}, all...)
}
