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

// failIf returns err, or errSilent if the command has already printed a problem.
func failIf(wrong bool, err error) error {
	if err == nil && wrong {
		return errSilent
	}
	return err
}

// printJSON prints one JSON document. With `--json` a command prints nothing else.
func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	// Do not escape < and & in paths and SQL, because \u003c is hard to read.
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// list prints a table with one row per item, or the text none if there are no items.
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

// named returns the item with the given name, or an error that suggests the nearest name.
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

// table prints rows under a heading. Each word of the heading names a column, with "_" for a blank.
// The last column takes the remaining width.
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

// align prints rows in aligned columns.
func align(w io.Writer, rows [][]string) error {
	return terminal.Of(w, os.Environ()).Table(terminal.Table{Rows: harmless(rows)})
}

// alignIndented is align for trusted rows. It keeps leading blanks.
func alignIndented(w io.Writer, rows [][]string) error {
	return terminal.Of(w, os.Environ()).Table(terminal.Table{Rows: rows})
}

// bold formats a heading if w is a terminal with bold type.
func bold(w io.Writer, said string) string { return toned(w, terminal.Strong, said) }

// harmless puts each cell on one line and escapes it. Cells hold file names and texts of models: a
// line break would shift the columns, and an escape sequence could rewrite the screen.
func harmless(rows [][]string) [][]string {
	for _, row := range rows {
		for i := range row {
			row[i] = text.OneLine(row[i])
		}
	}
	return rows
}

// markedColumns are the columns with a status mark. They never hold texts of models or users.
var markedColumns = []string{"OUTCOME", "LAST", "RUN", "STATE", "DECISION"}

// toneOf returns the tone of the mark in a cell: "● success", "12 ▲ error".
func toneOf(cell string) terminal.Tone {
	for word := range strings.FieldsSeq(cell) {
		if tone := api.ShapeTone(word); tone != "" {
			return terminal.Tone(tone)
		}
	}
	return terminal.Plain
}

// paint colours a text by its mark if w is a terminal with colours.
func paint(w io.Writer, said string) string { return toned(w, toneOf(said), said) }

// toned applies a tone to a trusted text if w is a terminal with colours.
func toned(w io.Writer, tone terminal.Tone, said string) string {
	return terminal.Of(w, os.Environ()).Paint(tone, said)
}

// shorten returns an untrusted text on one line, cut to at most n characters.
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

// clock formats an instant in now's zone. It adds the zone if the terminal's zone differs.
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

// readable converts the timestamps in a reason from UTC to a zone.
func readable(text string, zone *time.Location) string {
	return instantText.ReplaceAllStringFunc(text, func(s string) string {
		t, err := time.Parse(time.RFC3339, s)
		if err != nil {
			return s
		}
		return api.LocalTime(t, zone)
	})
}

// when formats a time relative to now: "3 min ago", "in 4 d 16 h".
func when(t api.Time, now time.Time) string { return text.When(t.Time, now) }

// inText returns the time until a future instant, or since when it has been due.
func inText(t api.Time, now time.Time) string {
	if d := now.Sub(t.Time); d >= time.Second {
		return "due since " + text.Span(d.Round(time.Second))
	}
	return when(t, now)
}

// runDuration returns the duration of a run, up to now if the run has not ended.
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

// outcomeMark returns the outcome of a run with its mark, or the state of an open run.
func outcomeMark(r api.Run) string {
	m := api.MarkOf(r.State, r.Outcome)
	if r.Outcome != "" {
		return api.MarkOf(domain.StateFinished, r.Outcome).Shape + " " + string(r.Outcome)
	}
	return m.Shape + " " + strings.TrimSuffix(fmt.Sprintf("%s: %s", r.State, r.WaitingFor), ": ")
}

// pageSize is the number of entries in one request. The API returns at most that many.
const pageSize = 1000

// pages holds the page options of a listing, newest first.
type pages struct {
	n      int
	before string // ID of an entry; "" starts at the newest
	all    bool
}

// flags declares -n, --before and --all. what is the singular name of an entry. where is a prefix
// for the help texts: the form of the command that takes the flags.
func (p *pages) flags(f *pflag.FlagSet, n int, what, where string) {
	f.IntVarP(&p.n, "number", "n", n, where+"how many")
	f.StringVar(&p.before, "before", "", where+"only those before the "+what+" of this `id`: the last of the page before")
	f.BoolVar(&p.all, "all", false, where+"all of them, however many")
}

// getPages requests the entries of a listing, page by page. id returns the ID of an entry, from
// which the next page continues.
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
