package dashboard

import (
	"cmp"
	"fmt"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"rouse/cmd/internal/api"
	"rouse/internal/domain"
	"rouse/internal/text"
)

// page holds the data common to all pages.
type page struct {
	Title   string
	Section string // section of the navigation
	Open    int    // number of open inbox items
	Version string
	Now     time.Time
	Zone    *time.Location
	Style   string // paths of the assets
	Script  string
	Icon    string
	Here    string // path and query of this page, to return to after a form
}

func (s *site) newPage(r *http.Request) (page, error) {
	p := page{Version: s.version, Now: time.Now(), Zone: s.control.Zone(), Style: s.assets.path("style.css"), Script: s.assets.path("app.js"), Icon: s.assets.path("icon.svg"), Here: r.URL.RequestURI()}
	if r.Method != http.MethodGet {
		p.Here = back(r)
	}

	open, err := s.answers.Inbox.List(r.Context())
	p.Open = len(open)
	return p, err
}

// titled returns the page with a title and a section.
func (p page) titled(title, section string) page {
	p.Title, p.Section = title, section
	return p
}

// exact formats a time in the configured time zone.
func (p page) exact(t time.Time) string { return api.LocalTime(t, p.Zone) }

// relative formats the distance of a time from now.
func (p page) relative(t time.Time) string {
	d := t.Sub(p.Now)
	if d < 0 {
		if d = -d; d < time.Second {
			return "now"
		}
		return span(d) + " ago"
	}
	return "in " + span(d)
}

// clock formats the time of day.
func (p page) clock(t time.Time) string { return t.In(p.Zone).Format("15:04") }

// day formats the date for use in filters.
func (p page) day(t time.Time) string { return t.In(p.Zone).Format(time.DateOnly) }

// span formats a duration in one or two units: "340 ms", "12 s", "3 min 20 s", "4 h", "3 d".
func span(d time.Duration) string {
	switch {
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < 10*time.Minute && d%time.Minute >= time.Second:
		return fmt.Sprintf("%d min %d s", int(d.Minutes()), int(d.Seconds())%60)
	case d < time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", int(d.Hours()))
	}
	return fmt.Sprintf("%d d", int(d.Hours()/24))
}

// money formats an amount in dollars. Small amounts have more digits.
func money(usd float64) string {
	if usd != 0 && usd < 0.01 {
		return fmt.Sprintf("$%.4f", usd)
	}
	return fmt.Sprintf("$%.2f", usd)
}

// Maximum lengths of texts on pages, in characters. Longer texts link to the full text.
const (
	lineLength  = 160
	blockLength = 1500
)

// line formats an untrusted text on one line.
func line(s string) string { return text.OneLine(text.Truncate(strings.TrimSpace(s), lineLength)) }

// block formats the start of an untrusted text on several lines.
func block(s string) string { return text.Lines(text.Truncate(s, blockLength)) }

// isCut reports whether a text is truncated when shown.
func isCut(s string, most int) bool { return utf8.RuneCountInString(s) > most }

// mark is a symbol for a state: a shape, a color class, and a word.
type mark struct{ Shape, Class, Word string }

// comingMark is the mark of a future run.
var comingMark = mark{"·", "grey", "coming"}

// markOf returns the mark of a run's state or outcome.
func markOf(state domain.State, outcome domain.Outcome, waiting domain.Wait) mark {
	m := api.MarkOf(state, outcome)
	out := mark{m.Shape, m.Tone, strings.ReplaceAll(string(outcome), "_", " ")}
	switch state {
	case domain.StateRunning, domain.StateQueued:
		out.Word = string(state)
	case domain.StateWaiting:
		if out.Word = "waiting"; waiting != "" {
			out.Word += " for " + string(waiting)
		}
	}
	return out
}

func runMark(r api.Run) mark { return markOf(r.State, r.Outcome, r.WaitingFor) }

// runLink returns the address of a run. For a failed run, it points to the failing call.
func runLink(id string, outcome domain.Outcome) string {
	if outcome.Failed() {
		return runPath(id) + "#failing"
	}
	return runPath(id)
}

// took returns the duration of a run so far. It returns 0 if the run has not started.
func (p page) took(r api.Run) time.Duration {
	switch {
	case r.StartedAt.IsZero():
		return 0
	case r.FinishedAt.IsZero():
		return p.Now.Sub(r.StartedAt.Time)
	}
	return r.FinishedAt.Sub(r.StartedAt.Time)
}

// says returns the error or the summary of a run.
func says(r api.Run) string {
	return cmp.Or(r.Error, r.Summary)
}

// began returns the time a run started or, before that, was queued.
func began(r api.Run) time.Time {
	if r.StartedAt.IsZero() {
		return r.QueuedAt.Time
	}
	return r.StartedAt.Time
}

func tookText(p page, r api.Run) string {
	if r.StartedAt.IsZero() {
		return "–"
	}
	return span(p.took(r))
}

func costText(r api.Run) string {
	if r.CostUSD == 0 {
		return "–"
	}
	return money(r.CostUSD)
}
