package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/terminal"
	"rouse/internal/domain"
	"rouse/internal/text"
)

// withJSON adds the flag --json to a command, and returns the command.
func withJSON(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().Bool("json", false, "print JSON")
	return cmd
}

// wantsJSON reports whether --json was given.
func wantsJSON(cmd *cobra.Command) bool {
	given, err := cmd.Flags().GetBool("json")
	return err == nil && given
}

// jsonOr prints v as JSON with --json, else calls print.
func jsonOr(cmd *cobra.Command, v any, print func() error) error {
	if wantsJSON(cmd) {
		return printJSON(cmd.OutOrStdout(), v)
	}
	return print()
}

// failIf returns err, or errSilent if a command has printed that it found something wrong.
func failIf(wrong bool, err error) error {
	if err == nil && wrong {
		return errSilent
	}
	return err
}

// printJSON writes one JSON document, which is all that `--json` prints.
func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	// Paths and SQL hold < and &; \u003c would only make them hard to read.
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// list prints a table with a row for each item, or none if there are no items.
func list[T any](w io.Writer, items []T, none, heading string, row func(T) []string) error {
	if len(items) == 0 && none != "" {
		return sayf(w, "%s\n", none)
	}
	var rows [][]string
	for _, i := range items {
		rows = append(rows, row(i))
	}
	return table(w, heading, rows)
}

// named returns the item that has a name, or an error that names the nearest.
func named[T any](thing, name string, items []T, nameOf func(T) string) (found T, err error) {
	var names []string
	for _, i := range items {
		if nameOf(i) == name {
			return i, nil
		}
		names = append(names, nameOf(i))
	}
	return found, usagef("%s", text.NoSuch(thing, name, names))
}

// field prints a line of a detail view, unless its value is empty.
func field(w io.Writer, name, value string) {
	if value != "" {
		fmt.Fprintf(w, "  %-9s %s\n", name, value)
	}
}

// sayf prints to w.
func sayf(w io.Writer, format string, args ...any) error {
	_, err := fmt.Fprintf(w, format, args...)
	return err
}

// table aligns rows under a heading, whose words are the columns ("_" is a blank); the last column takes what is left.
func table(w io.Writer, heading string, rows [][]string) error {
	head := strings.Fields(heading)
	for i := range head {
		head[i] = strings.ReplaceAll(head[i], "_", " ")
	}
	return terminal.Of(w, os.Environ()).Table(terminal.Table{Head: head, Rows: harmless(rows), Tone: func(column int, cell string) terminal.Tone {
		if column < len(head) && slices.Contains(markedColumns, head[column]) {
			return toneOf(cell)
		}
		return terminal.Plain
	}})
}

// align writes rows of cells under each other.
func align(w io.Writer, rows [][]string) error {
	return terminal.Of(w, os.Environ()).Table(terminal.Table{Rows: harmless(rows)})
}

// alignIndented is align for rows of our own words, whose blanks in front stay.
func alignIndented(w io.Writer, rows [][]string) error {
	return terminal.Of(w, os.Environ()).Table(terminal.Table{Rows: rows})
}

// bold is a heading, where w is a terminal that has such letters.
func bold(w io.Writer, said string) string { return toned(w, terminal.Strong, said) }

// harmless has each cell be one line: they hold texts of models and file names, of which a line break would move the columns, and an
// escape sequence could rewrite the screen.
func harmless(rows [][]string) [][]string {
	for _, row := range rows {
		for i := range row {
			row[i] = text.OneLine(row[i])
		}
	}
	return rows
}

// markedColumns hold a mark and what it stands for. Texts of others are in none of them.
var markedColumns = []string{"OUTCOME", "LAST", "RUN", "STATE", "DECISION"}

// toneOf is that of the mark in a cell: "● success", "12 ▲ error".
func toneOf(cell string) terminal.Tone {
	for word := range strings.FieldsSeq(cell) {
		if tone := api.ShapeTone(word); tone != "" {
			return terminal.Tone(tone)
		}
	}
	return terminal.Plain
}

// paint gives a text the tone of its mark, where w is a terminal that has colours.
func paint(w io.Writer, said string) string { return toned(w, toneOf(said), said) }

// toned gives our own words a tone, where w is a terminal that has colours.
func toned(w io.Writer, tone terminal.Tone, said string) string {
	return terminal.Of(w, os.Environ()).Paint(tone, said)
}

// shorten is the beginning of a text from anywhere, of at most n characters on one line.
func shorten(s string, n int) string { return text.Truncate(text.OneLine(s), n) }

// local formats an instant in now's zone, with the date unless it is today.
func local(t api.Time, now time.Time) string {
	if !t.IsZero() && t.In(now.Location()).Format(time.DateOnly) == now.Format(time.DateOnly) {
		return clock(t, now, time.TimeOnly)
	}
	return dated(t, now)
}

// dated formats an instant in now's zone with the date.
func dated(t api.Time, now time.Time) string { return clock(t, now, time.DateTime) }

// clock formats an instant in now's zone. It adds the zone if this terminal's zone has another time.
func clock(t api.Time, now time.Time, layout string) string {
	if t.IsZero() {
		return "–"
	}
	at := t.In(now.Location())
	if at.Format(time.DateTime) != t.Local().Format(time.DateTime) {
		layout += " MST"
	}
	return at.Format(layout)
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

// when is an instant as a listing has it: "3 min ago", "in 4 d 16 h".
func when(t api.Time, now time.Time) string { return text.When(t.Time, now) }

// inText is how far away an instant is that is to come.
func inText(t api.Time, now time.Time) string {
	if d := now.Sub(t.Time); d >= time.Second {
		return "due since " + text.Span(d.Round(time.Second))
	}
	return when(t, now)
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

	return text.Span(end.Sub(r.StartedAt.Time))
}

// outcomeMark is how a run ended, or stands, with its shape.
func outcomeMark(r api.Run) string {
	m := api.MarkOf(r.State, r.Outcome)
	if r.Outcome != "" {
		return api.MarkOf(domain.StateFinished, r.Outcome).Shape + " " + string(r.Outcome)
	}
	return m.Shape + " " + strings.TrimSuffix(fmt.Sprintf("%s: %s", r.State, r.WaitingFor), ": ")
}

// pageSize is how much of a listing one request asks for; the API gives no more at once.
const pageSize = 1000

// pages says how much of a listing is wanted, newest first.
type pages struct {
	n      int
	before string // an id of the listing; "": from the newest on
	all    bool
}

// flags declares -n, --before and --all; what names what is listed, in the singular, and where says for which form of the
// command they are.
func (p *pages) flags(f *pflag.FlagSet, n int, what, where string) {
	f.IntVarP(&p.n, "number", "n", n, where+"how many")
	f.StringVar(&p.before, "before", "", where+"only those before the "+what+" of this `id`: the last of the page before")
	f.BoolVar(&p.all, "all", false, where+"all of them, however many")
}

// getPages asks for so much of a listing, in as many requests as that takes. id is what a listing goes on from.
func getPages[T any](s *session, path string, query url.Values, p pages, id func(T) string) ([]T, error) {
	if !p.all && p.n < 1 {
		return nil, usagef("-n %d: say how many, from 1 on, or --all", p.n)
	}

	out := []T{}
	for before := p.before; ; {
		size := pageSize
		if !p.all {
			size = min(size, p.n-len(out))
		}
		query.Set("n", strconv.Itoa(size))
		if before != "" {
			query.Set("before", before)
		}

		var page []T
		if err := s.get(path, query, &page); err != nil {
			return nil, err
		}
		if out = append(out, page...); len(page) < size || len(out) == p.n && !p.all {
			return out, nil
		}
		before = id(page[len(page)-1])
	}
}
