package main

import (
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strings"
	"text/tabwriter"
	"time"

	"rouse/cmd/internal/api"
	"rouse/internal/domain"
	"rouse/internal/text"
)

// printJSON writes one JSON document, which is all that `--json` prints.
func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	// Paths and SQL hold < and &; \u003c would only make them hard to read.
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// table aligns rows under a heading; the last column takes what is left.
func table(w io.Writer, heading string, rows [][]string) error {
	return align(w, append([][]string{strings.Fields(heading)}, rows...))
}

// align writes rows of cells under each other.
func align(w io.Writer, rows [][]string) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		for i := range row {
			// Cells hold texts of models and file names: a tab or a line break would move the columns,
			// and an escape sequence could rewrite the screen.
			row[i] = text.OneLine(row[i])
		}
		fmt.Fprintln(tw, strings.Join(row, "\t"))
	}

	return tw.Flush()
}

// shorten is the beginning of a text from anywhere, of at most n characters on one line.
func shorten(s string, n int) string { return text.Truncate(text.OneLine(s), n) }

// local is an instant as a person reads it: the local time, with the date unless it is today.
func local(t api.Time, now time.Time) string {
	if t.IsZero() {
		return "–"
	}

	at := t.Local()
	if y, m, d := at.Date(); y == now.Local().Year() && m == now.Local().Month() && d == now.Local().Day() {
		return at.Format(time.TimeOnly)
	}
	return at.Format(time.DateTime)
}

var instantText = regexp.MustCompile(`\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z\b`)

// readable shows the instants in a reason, which the record keeps in UTC, as the clocks of
// a zone do.
func readable(text string, zone *time.Location) string {
	return instantText.ReplaceAllStringFunc(text, func(s string) string {
		t, err := time.Parse(time.RFC3339, s)
		if err != nil {
			return s
		}
		return api.LocalTime(t, zone)
	})
}

// inText is how far away an instant is.
func inText(t api.Time, now time.Time) string {
	d := t.Sub(now).Round(time.Second)
	if d < 0 {
		return "due since " + (-d).String()
	}
	return "in " + d.String()
}

// runDuration is how long a run lasted, or has lasted so far.
func runDuration(r api.Run, now time.Time) string {
	if r.StartedAt.IsZero() {
		return "–"
	}

	end := r.FinishedAt.Time
	if end.IsZero() {
		end = now
	}

	d := end.Sub(r.StartedAt.Time)
	if d < time.Second {
		return d.Round(time.Millisecond).String()
	}

	return d.Round(100 * time.Millisecond).String()
}

// outcomeMark is the shape that stands beside each outcome, the same as on the dashboard.
func outcomeMark(r api.Run) string {
	marks := map[domain.Outcome]string{
		domain.OutcomeSuccess: "●", domain.OutcomeNothing: "○", domain.OutcomePartial: "◐",
		domain.OutcomeError: "▲", domain.OutcomeTimeout: "⧗", domain.OutcomeBudget: "$",
		domain.OutcomeCancelled: "■", domain.OutcomeInterrupted: "⚡", domain.OutcomeSkipped: "–",
	}
	if m, ok := marks[r.Outcome]; ok {
		return m + " " + string(r.Outcome)
	}

	mark := ""
	switch r.State {
	case domain.StateRunning:
		return "◌ running"
	case domain.StateWaiting:
		mark = "? "
	}

	return mark + strings.TrimSuffix(fmt.Sprintf("%s: %s", r.State, r.WaitingFor), ": ")
}
