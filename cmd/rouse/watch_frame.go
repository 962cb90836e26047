package main

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/terminal"
	"rouse/internal/domain"
	"rouse/internal/text"
)

// maxComing is how many instants that come are shown.
const maxComing = 6

// frame is what is shown now, in lines from the top: what concerns its reader most comes first, and what was last fills the rest.
func (w *liveScreen) frame(now time.Time, columns, lines int) []string {
	out := w.head(now, columns)

	var running, waiting, queued, coming [][]string
	for _, r := range w.shown.open {
		row := []string{outcomeMark(r), r.ID, jobName(r), when(r.QueuedAt, now)}
		switch r.State {
		case domain.StateRunning:
			running = append(running, []string{api.MarkOf(r.State, "").Shape, r.ID, jobName(r), text.Span(now.Sub(r.StartedAt.Time).Round(time.Second)), w.does(r)})
		case domain.StateWaiting:
			if !asksOwner(w.shown.inbox, r) {
				waiting = append(waiting, row)
			}
		default:
			queued = append(queued, row)
		}
	}
	for _, o := range w.shown.coming {
		coming = append(coming, []string{inText(o.Actual, now), comingJob(o), o.Source, comingNote(o, now.Location())})
	}

	out = append(out, w.section("RUNNING", running, "nothing runs")...)
	out = append(out, w.section("WAITS FOR YOU", askedRows(w.shown.inbox, now), "nothing")...)
	if len(waiting)+len(queued) > 0 {
		out = append(out, w.section("WAITS", append(waiting, queued...), "")...)
	}
	out = append(out, w.section("COMES", coming, "nothing by the clock")...)

	var latest [][]string
	for _, r := range w.shown.latest[:min(len(w.shown.latest), max(lines-len(out)-2, 1))] {
		latest = append(latest, []string{outcomeMark(r), r.ID, jobName(r), when(r.FinishedAt, now), shorten(runSummary(r), 160)})
	}
	return append(out, w.section("LATEST", latest, "nothing has run yet")...)
}

// head says which home is watched, how it is, and what is wrong.
func (w *liveScreen) head(now time.Time, columns int) []string {
	left, right := "rouse  "+text.OneLine(w.home), "q quits  "+clock(api.At(now), now, time.TimeOnly)
	blanks := max(columns-len([]rune(left))-len([]rune(right)), 2)
	out := []string{w.paint.Paint(terminal.Strong, left) + strings.Repeat(" ", blanks) + w.paint.Paint(terminal.Grey, right)}

	st := w.shown.status
	said := fmt.Sprintf("%d running, %d waiting, %d queued; served by process %d since %s", st.Running, st.Waiting, st.Queued, st.PID, strings.TrimSuffix(when(st.StartedAt, now), " ago"))
	switch {
	case w.gone:
		said = w.paint.Paint(terminal.Bad, "▲ the daemon has ended; this is how it was. As soon as one serves the home, this goes on")
	case st.PID == 0:
		said = "…"
	}
	out = append(out, said)

	for _, problem := range append([]string{st.Problem}, st.WatchProblems...) {
		if problem != "" {
			out = append(out, w.paint.Paint(terminal.Bad, "▲ "+text.OneLine(problem)))
		}
	}
	if len(st.ConfigProblems) > 0 {
		out = append(out, w.paint.Paint(terminal.Bad, "▲ the configuration on disk cannot be used: rouse config check"))
	}
	return out
}

// does is what a run is doing, as far as its events since this screen was opened tell.
func (w *liveScreen) does(r api.Run) string {
	if said := w.doing[r.ID]; said != "" || r.Steps == 0 {
		return said
	}
	return fmt.Sprintf("step %d", r.Steps)
}

// nextOfEach keeps the first that comes of each job.
func nextOfEach(coming []api.Occurrence) (out []api.Occurrence) {
	seen := map[string]bool{}
	for _, o := range coming {
		if of := comingJob(o); !seen[of] && len(out) < maxComing {
			seen[of] = true
			out = append(out, o)
		}
	}
	return out
}

// asksOwner says whether a run waits for one of the items that are listed anyway.
func asksOwner(inbox []api.Item, r api.Run) bool {
	return slices.ContainsFunc(inbox, func(i api.Item) bool { return i.Run == r.ID })
}

func askedRows(inbox []api.Item, now time.Time) (rows [][]string) {
	for _, i := range inbox {
		left := ""
		if !i.ExpiresAt.IsZero() {
			left = timeLeft(i.ExpiresAt.Sub(now))
		}
		rows = append(rows, []string{"?", i.ID, shorten(i.Title, 100), left, answerHint(i)})
	}
	return rows
}

// section is a heading with rows below it, or with what is said where there are none.
func (w *liveScreen) section(heading string, rows [][]string, none string) []string {
	out := []string{"", w.paint.Paint(terminal.Strong, heading)}
	if len(rows) == 0 {
		return append(out, w.paint.Paint(terminal.Grey, "  "+none))
	}

	var table bytes.Buffer
	// As wide as they are: the screen cuts lines, for one that wraps would push others off it.
	err := terminal.Fixed(&table, 0, w.paint.HasColours()).Table(terminal.Table{Rows: harmless(rows), Tone: func(column int, cell string) terminal.Tone {
		if column == 0 {
			return toneOf(cell)
		}
		return terminal.Plain
	}})
	if err != nil {
		return out // a buffer takes everything
	}
	for line := range strings.Lines(table.String()) {
		out = append(out, "  "+strings.TrimSuffix(line, "\n"))
	}
	return out
}
