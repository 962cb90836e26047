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

// page is what each page has.
type page struct {
	Title   string
	Section string // of the navigation
	Open    int    // items of the inbox
	Version string
	Now     time.Time
	Zone    *time.Location
	Style   string // paths of the assets
	Script  string
	Icon    string
	Here    string // path and query of this page, for forms to come back to
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

// titled is the page under a title, in a section.
func (p page) titled(title, section string) page {
	p.Title, p.Section = title, section
	return p
}

// exact is an instant as the clocks of the configuration's zone show it.
func (p page) exact(t time.Time) string { return api.LocalTime(t, p.Zone) }

// relative says how long ago an instant was, or how far ahead it lies.
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

// clock is the time of day of an instant.
func (p page) clock(t time.Time) string { return t.In(p.Zone).Format("15:04") }

// day is the date of an instant, as pages filter by it.
func (p page) day(t time.Time) string { return t.In(p.Zone).Format(time.DateOnly) }

// span is a length of time in one or two units: "340 ms", "12 s", "3 min 20 s", "4 h", "3 d".
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

// money is an amount in dollars; small ones keep the digits that count.
func money(usd float64) string {
	if usd != 0 && usd < 0.01 {
		return fmt.Sprintf("$%.4f", usd)
	}
	return fmt.Sprintf("$%.2f", usd)
}

// Lengths of texts on pages, in characters. All of a text is a link away.
const (
	lineLength  = 160
	blockLength = 1500
)

// line is a text of others in one line.
func line(s string) string { return text.OneLine(text.Truncate(strings.TrimSpace(s), lineLength)) }

// block is the beginning of a text of others, in lines.
func block(s string) string { return text.Lines(text.Truncate(s, blockLength)) }

// isCut says whether a text is longer than what is shown of it.
func isCut(s string, most int) bool { return utf8.RuneCountInString(s) > most }

// mark is how something ended, or stands: a shape, a class of a colour, and the word.
type mark struct{ Shape, Class, Word string }

// comingMark is that of what is not due yet.
var comingMark = mark{"·", "grey", "coming"}

// markOf is how a run ended, or stands.
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

// runLink leads to a run, and into one that failed to its failing call.
func runLink(id string, outcome domain.Outcome) string {
	if outcome.Failed() {
		return runPath(id) + "#failing"
	}
	return runPath(id)
}

// took is how long a run has been on, up to now or to its end; 0 before it began.
func (p page) took(r api.Run) time.Duration {
	switch {
	case r.StartedAt.IsZero():
		return 0
	case r.FinishedAt.IsZero():
		return p.Now.Sub(r.StartedAt.Time)
	}
	return r.FinishedAt.Sub(r.StartedAt.Time)
}

// says is what a run is about in a line: what went wrong, or its summary.
func says(r api.Run) string {
	return cmp.Or(r.Error, r.Summary)
}

// began is when a run started, or was asked for.
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
